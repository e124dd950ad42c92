package main

import (
	"fmt"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// take handles one frame of the peer.
func (c *sourceConn) take(h wire.FrameHeader, body []byte) error {
	if len(body) == 0 {
		return nil // a sign of life
	}
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return err
	}
	switch code {
	case wire.CodeSASLInit:
		c.frame(wire.TypeSASL, 0, &wire.SASLOutcome{}) // whoever it is
	case wire.CodeOpen:
		c.frame(wire.TypeAMQP, 0, &wire.Open{ContainerID: "amqpflow-bench-source", MaxFrameSize: 128 << 10, ChannelMax: 255})
	case wire.CodeClose:
		c.frame(wire.TypeAMQP, 0, &wire.Close{})
		c.closed = true
		return c.flush()
	case wire.CodeBegin:
		return c.begin(h.Channel, body)
	default:
		return c.takeOnSession(h.Channel, code, body)
	}
	return nil
}

// begin maps the peer's channel to the same one of ours.
func (c *sourceConn) begin(channel uint16, body []byte) error {
	var b wire.Begin
	if err := b.Decode(body); err != nil {
		return err
	}
	s := &sourceSession{
		channel: channel, nextIncoming: b.NextOutgoingID, window: b.IncomingWindow,
		links: map[uint32]*sourceLink{},
	}
	c.sessions[channel] = s
	c.frame(wire.TypeAMQP, channel, &wire.Begin{
		RemoteChannel: wire.Some(uint32(channel)), IncomingWindow: sinkWindow,
		OutgoingWindow: sinkWindow, HandleMax: 255,
	})
	return nil
}

// takeOnSession handles what belongs to a session.
func (c *sourceConn) takeOnSession(channel uint16, code uint64, body []byte) error {
	s := c.sessions[channel]
	if s == nil {
		return fmt.Errorf("frame 0x%x on channel %d, which has no session", code, channel)
	}
	switch code {
	case wire.CodeTransfer:
		return s.take(body)
	case wire.CodeFlow:
		return c.flow(s, body)
	case wire.CodeDisposition: // credit does not depend on settlement
	case wire.CodeAttach:
		return c.attach(s, body)
	case wire.CodeDetach:
		var d wire.Detach
		if err := d.Decode(body); err != nil {
			return err
		}
		delete(s.links, d.Handle)
		c.frame(wire.TypeAMQP, channel, &wire.Detach{Handle: d.Handle, Closed: true})
	case wire.CodeEnd:
		delete(c.sessions, channel)
		c.frame(wire.TypeAMQP, channel, &wire.End{})
	default:
		return fmt.Errorf("frame 0x%x is not one the source knows", code)
	}
	return nil
}

// attach answers with the opposite role under the same handle. A sender gets
// credit with its answer.
func (c *sourceConn) attach(s *sourceSession, body []byte) error {
	var a wire.Attach
	if err := a.Decode(body); err != nil {
		return err
	}
	l := &sourceLink{handle: a.Handle}
	answer := wire.Attach{
		Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: a.SndSettleMode,
		Source: a.Source, Target: a.Target,
	}
	if a.Role == wire.RoleReceiver {
		answer.InitialDeliveryCount = wire.Some(0)
		if a.Source == nil || c.source.payloads[a.Source.Address] == nil {
			return fmt.Errorf("link %s: no such source address", a.Name)
		}
		l.load(s.channel, c.source.payloads[a.Source.Address])
	} else {
		l.sink = true
		l.deliveryCount = a.InitialDeliveryCount.Value
	}
	s.links[a.Handle] = l
	c.frame(wire.TypeAMQP, s.channel, &answer)
	if l.sink {
		c.frame(wire.TypeAMQP, s.channel, s.grant(l))
	}
	return nil
}

// flow takes the peer's window and credit. An echo is answered at once, a
// drain once the credit is used up.
func (c *sourceConn) flow(s *sourceSession, body []byte) error {
	var f wire.Flow
	if err := f.Decode(body); err != nil {
		return err
	}
	s.window = f.NextIncomingID.Value + f.IncomingWindow - s.nextOutgoing
	l := s.links[f.Handle.Value]
	if f.Handle.Set && l != nil && !l.sink && f.LinkCredit.Set {
		l.credit = f.DeliveryCount.Value + f.LinkCredit.Value - l.deliveryCount
		l.drain = f.Drain
	}
	if f.Echo && !f.Drain {
		c.frame(wire.TypeAMQP, s.channel, s.state(l))
	}
	return nil
}
