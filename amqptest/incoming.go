package amqptest

import (
	"fmt"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// frame handles one complete frame.
func (c *conn) frame(h wire.FrameHeader, body []byte) {
	want := wire.TypeAMQP
	if c.phase == phaseSASL {
		want = wire.TypeSASL
	}
	if h.Type != want {
		c.violatef(ruleFrame, "a frame of type %d where type %d is due", h.Type, want)
		return
	}
	if c.phase == phaseSASL {
		c.saslFrame(body)
		return
	}
	if len(body) == 0 {
		c.heartbeat(h.Channel)
		return
	}
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		c.violatef(rulePerformative, "%v", err)
		return
	}
	switch {
	case c.closeIn:
		c.violatef(ruleAfterClose, "%s after close", performativeName(code))
	case c.phase == phaseClosing:
		c.closingFrame(code)
	case c.phase == phaseRunning && h.Channel > c.srv.opts.ChannelMax:
		c.violatef(ruleChannelMax, "%s on channel %d, %d is the highest", performativeName(code), h.Channel, c.srv.opts.ChannelMax)
	case code != wire.CodeTransfer && !c.valuesHold(code, body):
	case c.phase == phaseOpen:
		c.openFrame(h.Channel, code, body)
	case code == wire.CodeOpen:
		c.violatef(ruleUnexpectedFrame, "a second open")
	case code == wire.CodeClose:
		c.onClose(body)
	case code == wire.CodeBegin:
		c.onBegin(h.Channel, body)
	default:
		c.sessionFrame(h.Channel, code, body)
	}
}

// heartbeat takes an empty frame. Spec: 2.4.5.
func (c *conn) heartbeat(channel uint16) {
	highest := c.srv.opts.ChannelMax
	if c.phase == phaseOpen {
		highest = 0
	}
	switch {
	case c.closeIn:
		c.violatef(ruleAfterClose, "an empty frame after close")
	case channel > highest:
		c.violatef(ruleChannelMax, "an empty frame on channel %d, %d is the highest", channel, highest)
	}
}

// valuesHold checks what the decoders let pass. What does not decode at all is
// left to them.
func (c *conn) valuesHold(code uint64, body []byte) bool {
	_, err := wire.Check(body)
	if err == nil {
		return true
	}
	if _, malformed := wire.SkipValue(body); malformed != nil {
		return true
	}
	c.violatef(ruleValue, "%s: %v", performativeName(code), err)
	return false
}

// sessionFrame hands a frame to the session on its channel.
func (c *conn) sessionFrame(channel uint16, code uint64, body []byte) {
	ses := c.sessions[channel]
	switch {
	case ses == nil:
		c.violatef(ruleChannel, "%s on channel %d, which has no session", performativeName(code), channel)
		return
	case ses.ended && code != wire.CodeEnd:
		return // our END is out: what the client sent before it heard of it means nothing
	}
	var err error
	switch code {
	case wire.CodeTransfer:
		if err = c.transfer.Decode(body); err == nil && (c.transfer.State.Kind == wire.StateNone || c.valuesHold(code, body)) {
			ses.onTransfer(&c.transfer)
		}
	case wire.CodeFlow:
		if err = c.flow.Decode(body); err == nil {
			ses.onFlow(&c.flow)
		}
	case wire.CodeDisposition:
		if err = c.disposition.Decode(body); err == nil {
			ses.onDisposition(&c.disposition)
		}
	default:
		err = ses.controlFrame(code, body)
	}
	if err != nil {
		c.violatef(rulePerformative, "%s: %v", performativeName(code), err)
	}
}

// controlFrame handles what attaches, detaches and ends.
func (ses *session) controlFrame(code uint64, body []byte) error {
	switch code {
	case wire.CodeAttach:
		var a wire.Attach
		if err := a.Decode(body); err != nil {
			return err
		}
		ses.onAttach(&a)
	case wire.CodeDetach:
		var d wire.Detach
		if err := d.Decode(body); err != nil {
			return err
		}
		ses.onDetach(&d)
	case wire.CodeEnd:
		var e wire.End
		if err := e.Decode(body); err != nil {
			return err
		}
		if ses.conn.fieldsHold("end", e.Error) {
			ses.onEnd()
		}
	default:
		ses.conn.violatef(ruleUnexpectedFrame, "%s", performativeName(code))
	}
	return nil
}

func performativeName(code uint64) string {
	names := [...]string{"open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"}
	if i := code - wire.CodeOpen; code >= wire.CodeOpen && i < uint64(len(names)) {
		return names[i]
	}
	return fmt.Sprintf("performative 0x%02x", code)
}
