package amqptest

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	containerID        = "amqptest"
	mechanismPlain     = "PLAIN"
	mechanismAnonymous = "ANONYMOUS"
	mechanismExternal  = "EXTERNAL"
)

// protocolHeader answers a protocol header. What is not offered is answered
// with what is, and the connection ends. Spec: 2.2, 5.3.1.
func (c *conn) protocolHeader(b []byte) {
	id, err := wire.ParseProtocolHeader(b)
	switch {
	case err != nil:
		c.header(wire.ProtoAMQP)
		c.violatef(ruleProtocolHeader, "%v", err)
	case id == wire.ProtoSASL && c.phase == phaseHeader:
		c.header(wire.ProtoSASL)
		c.writeSASL(&wire.SASLMechanisms{Mechanisms: c.srv.mechanisms()})
		c.phase = phaseSASL
	case id == wire.ProtoAMQP && (c.phase == phaseAMQP || c.srv.open()):
		c.header(wire.ProtoAMQP)
		c.phase = phaseOpen
	case id == wire.ProtoSASL:
		c.header(wire.ProtoAMQP)
		c.violatef(ruleProtocolHeader, "a second SASL layer")
	default: // TLS inside the connection, or no SASL where it is required
		c.header(wire.ProtoSASL)
		c.srv.log.Warn("protocol refused", "peer", c.name, "protocol", id)
		c.shut(nil)
	}
}

// open says whether a client may come without SASL.
func (s *Server) open() bool { return len(s.opts.Users) == 0 && s.opts.External == nil }

func (c *conn) header(id wire.ProtoID) {
	h := wire.ProtocolHeader(id)
	c.out = append(c.out, h[:]...)
	c.passed(true, false, h[:])
	c.touch()
}

// mechanisms are what the options allow.
func (s *Server) mechanisms() []wire.Symbol {
	var offered []wire.Symbol
	if s.opts.External != nil {
		offered = append(offered, mechanismExternal)
	}
	switch {
	case len(s.opts.Users) > 0:
		offered = append(offered, mechanismPlain)
	case s.opts.External == nil:
		offered = append(offered, mechanismPlain, mechanismAnonymous)
	}
	return offered
}

// saslFrame takes sasl-init, the only SASL frame that a client has to send:
// no mechanism here has a challenge. Spec: 5.3.3.2.
func (c *conn) saslFrame(body []byte) {
	var init wire.SASLInit
	if err := init.Decode(body); err != nil {
		c.violatef(ruleSASL, "sasl-init: %v", err)
		return
	}
	if !c.valuesHold(wire.CodeSASLInit, body) {
		return
	}
	if offered := c.srv.mechanisms(); !slices.Contains(offered, init.Mechanism) {
		c.writeSASL(&wire.SASLOutcome{Code: wire.SASLAuth})
		c.violatef(ruleSASL, "mechanism %q, offered are %v", init.Mechanism, offered)
		return
	}
	if c.refuseSASL() {
		return
	}
	switch init.Mechanism {
	case mechanismExternal:
		c.external, c.asking = string(init.InitialResponse), true
	case mechanismPlain:
		user, ok := c.srv.admits(init.InitialResponse)
		c.authenticated(init.Mechanism, user, ok)
	default:
		c.authenticated(init.Mechanism, "", true)
	}
}

// askExternal asks Options.External, without the mutex: it may call the server.
func (c *conn) askExternal() {
	s := c.srv
	c.asking = false
	err := errors.New("the callback did not return")
	func() {
		s.unlock()
		defer s.lock()
		err = s.opts.External(c.external, c.nc)
	}()
	if c.phase != phaseSASL || c.dead {
		return // closed meanwhile
	}
	if err != nil {
		s.log.Warn("external identity refused", "peer", c.name, "identity", c.external, "error", err)
	}
	c.authenticated(mechanismExternal, c.external, err == nil)
}

// authenticated answers sasl-init.
func (c *conn) authenticated(mechanism wire.Symbol, user string, ok bool) {
	if !ok {
		c.writeSASL(&wire.SASLOutcome{Code: wire.SASLAuth})
		c.srv.log.Warn("authentication failed", "peer", c.name, "mechanism", string(mechanism))
		c.shut(nil)
		return
	}
	c.user = user
	c.writeSASL(&wire.SASLOutcome{Code: wire.SASLOK})
	c.phase = phaseAMQP
}

// admits checks the credentials of PLAIN and returns the user. A response is
// the identity to act as, the user and the password, each but the last ended
// by a zero byte (RFC 4616).
func (s *Server) admits(response []byte) (user string, ok bool) {
	parts := bytes.Split(response, []byte{0})
	if len(parts) != 3 {
		return "", false
	}
	user = string(parts[1])
	if len(s.opts.Users) == 0 {
		return user, true
	}
	password, known := s.opts.Users[user]
	return user, known && subtle.ConstantTimeCompare([]byte(password), parts[2]) == 1
}

// openFrame answers OPEN, which must come first.
func (c *conn) openFrame(channel uint16, code uint64, body []byte) {
	if code != wire.CodeOpen {
		c.violatef(ruleOpenFirst, "%s before open", performativeName(code))
		return
	}
	var o wire.Open
	if err := o.Decode(body); err != nil {
		c.violatef(rulePerformative, "open: %v", err)
		return
	}
	if !c.symbolKeysHold("open", o.Properties) {
		return
	}
	c.peer = o
	opts := &c.srv.opts
	c.write(0, &wire.Open{
		ContainerID: containerID, MaxFrameSize: opts.MaxFrameSize, ChannelMax: opts.ChannelMax,
		IdleTimeout:         uint32(opts.IdleTimeout.Milliseconds() / 2),
		OfferedCapabilities: c.srv.dialect.offered,
		Properties:          c.srv.dialect.properties,
	})
	c.phase = phaseRunning
	switch {
	case channel != 0:
		c.violatef(ruleChannel, "open on channel %d", channel)
	case o.MaxFrameSize < minMaxFrameSize:
		c.violatef(ruleOpen, "a max-frame-size of %d, which is below %d", o.MaxFrameSize, minMaxFrameSize)
	default:
		c.srv.log.Info("connection opened", "peer", c.name, "container", o.ContainerID)
		c.refuseOpen()
	}
}
