package amqptest

import (
	"bytes"
	"crypto/subtle"

	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	containerID        = "amqptest"
	mechanismPlain     = "PLAIN"
	mechanismAnonymous = "ANONYMOUS"
	saslOK             = 0
	saslAuth           = 1
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
		c.append(wire.TypeSASL, 0, &wire.SASLMechanisms{Mechanisms: c.srv.mechanisms()})
		c.phase = phaseSASL
	case id == wire.ProtoAMQP && (c.phase == phaseAMQP || len(c.srv.opts.Users) == 0):
		c.header(wire.ProtoAMQP)
		c.phase = phaseOpen
	case id == wire.ProtoSASL:
		c.header(wire.ProtoAMQP)
		c.violatef(ruleProtocolHeader, "a second SASL layer")
	default: // TLS inside the connection, or no SASL where Users is set
		c.header(wire.ProtoSASL)
		c.srv.log.Warn("protocol refused", "peer", c.name, "protocol", id)
		c.shut(nil)
	}
}

func (c *conn) header(id wire.ProtoID) {
	h := wire.ProtocolHeader(id)
	c.out = append(c.out, h[:]...)
	c.counted(true, h[:])
	c.touch()
}

func (s *Server) mechanisms() []wire.Symbol {
	if len(s.opts.Users) > 0 {
		return []wire.Symbol{mechanismPlain}
	}
	return []wire.Symbol{mechanismPlain, mechanismAnonymous}
}

func (c *conn) saslFrame(body []byte) {
	var init wire.SASLInit
	if err := init.Decode(body); err != nil {
		c.violatef(ruleSASL, "sasl-init: %v", err)
		return
	}
	if c.refuseSASL() {
		return
	}
	if !c.srv.admits(&init) {
		c.append(wire.TypeSASL, 0, &wire.SASLOutcome{Code: saslAuth})
		c.srv.log.Warn("authentication failed", "peer", c.name, "mechanism", string(init.Mechanism))
		c.shut(nil)
		return
	}
	c.append(wire.TypeSASL, 0, &wire.SASLOutcome{Code: saslOK})
	c.phase = phaseAMQP
}

// admits checks credentials. A PLAIN response is the identity to act as, the
// user and the password, each but the last ended by a zero byte (RFC 4616).
func (s *Server) admits(init *wire.SASLInit) bool {
	users := s.opts.Users
	switch init.Mechanism {
	case mechanismAnonymous:
		return len(users) == 0
	case mechanismPlain:
		parts := bytes.Split(init.InitialResponse, []byte{0})
		if len(parts) != 3 {
			return false
		}
		if len(users) == 0 {
			return true
		}
		password, known := users[string(parts[1])]
		return known && subtle.ConstantTimeCompare([]byte(password), parts[2]) == 1
	default:
		return false
	}
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
	c.peer = o
	opts := &c.srv.opts
	c.write(0, &wire.Open{
		ContainerID: containerID, MaxFrameSize: opts.MaxFrameSize, ChannelMax: opts.ChannelMax,
		IdleTimeout: uint32(opts.IdleTimeout.Milliseconds() / 2),
		Properties:  wire.Map{{Key: wire.Symbol("product"), Value: containerID}},
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
