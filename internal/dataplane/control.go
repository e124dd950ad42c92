package dataplane

import (
	"fmt"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Write takes one protocol header or frame from go-amqp. It never waits for the
// socket. A frame that go-amqp does not write when it is used as agreed fails the
// connection; after the connection's end it returns why.
func (c *Conn) Write(p []byte) (int, error) {
	h, code, err := c.peek(p)
	if err == nil {
		if sticky := c.Err(); sticky != nil && (code != wire.CodeClose || c.down.Load()) {
			return 0, sticky
		}
		err = c.control(h, code, p)
	}
	if err != nil {
		c.fail(err)
		return 0, err
	}
	return len(p), nil
}

// codePass is what peek says of units that pass as they are.
const codePass = 0

// peek looks at what go-amqp writes. It never writes an extended header.
func (c *Conn) peek(p []byte) (h wire.FrameHeader, code uint64, err error) {
	if id, err := wire.ParseProtocolHeader(p); err == nil {
		c.mu.Lock()
		if c.wrote < 0 {
			c.wrote = int(id)
		}
		c.mu.Unlock()
		return h, codePass, nil
	}
	if h, err = wire.ParseFrameHeader(p); err != nil {
		return h, 0, misuse("%w", err)
	}
	body := p[wire.FrameHeaderSize:]
	if h.Size != uint32(len(p)) || h.DOff != 2 {
		return h, 0, misuse("%d octets in one write, %d in the frame", len(p), h.Size)
	}
	if h.Type == wire.TypeSASL {
		c.mu.Lock()
		c.saslSent = max(c.saslSent, len(p))
		c.mu.Unlock()
		return h, codePass, nil
	}
	if len(body) == 0 {
		return h, codePass, nil
	}
	if code, _, err = wire.PeekDescriptor(body); err != nil {
		return h, 0, misuse("%w", err)
	}
	return h, code, nil
}

func (c *Conn) control(h wire.FrameHeader, code uint64, p []byte) error {
	switch code {
	case codePass:
		c.out.append(p)
		return nil
	case wire.CodeOpen:
		return c.openOut(p)
	case wire.CodeBegin:
		return c.beginOut(h.Channel, p)
	case wire.CodeAttach:
		return c.attachOut(h.Channel, p)
	case wire.CodeDetach:
		return c.detachOut(h.Channel, p)
	case wire.CodeEnd:
		return c.endOut(h.Channel, p)
	case wire.CodeClose:
		c.writeClose(p)
		return nil
	}
	return misuse("performative 0x%02x", code)
}

// openOut announces the frame size that the reader holds the peer to and the
// channels that ExpectSession hands out, whatever go-amqp makes of its options.
func (c *Conn) openOut(p []byte) error {
	var o wire.Open
	if err := o.Decode(p[wire.FrameHeaderSize:]); err != nil {
		return misuse("%w", err)
	}
	o.MaxFrameSize = c.opts.MaxFrame
	if n := c.opts.MaxSessions; n > 0 {
		o.ChannelMax = uint16(min(int(o.ChannelMax), n-1))
	}
	c.mu.Lock()
	c.limit = min(c.limit, int(o.ChannelMax)+1)
	c.mu.Unlock()
	c.out.append(encodeAMQP(0, o.Append))
	return nil
}

// beginOut binds a BEGIN to the session expected first. It is parked while the
// channel's last session still owes the peer an END.
//
// Spec: 2.5.1.
func (c *Conn) beginOut(channel uint16, p []byte) error {
	var b wire.Begin
	if err := b.Decode(p[wire.FrameHeaderSize:]); err != nil {
		return misuse("%w", err)
	}
	if c.orig.transfer != 0 {
		b.NextOutgoingID = c.orig.transfer
		p = encodeAMQP(channel, b.Append)
	}
	c.mu.Lock()
	if len(c.expected) == 0 {
		c.mu.Unlock()
		return misuse("begin of a session nobody expects")
	}
	s := c.expected[0]
	c.expected = c.expected[1:]
	old := c.sessions[channel]
	if old == nil {
		c.sessions[channel] = s
	}
	c.mu.Unlock()

	s.mu.Lock()
	s.state = sessionBeginSent
	s.channel = channel
	s.firstOutgoing, s.nextOutgoing = b.NextOutgoingID, b.NextOutgoingID
	s.mu.Unlock()
	if old == nil {
		c.out.append(p)
		return nil
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.state != sessionEndReceived || old.parked != nil {
		return misuse("begin on channel %d, which is in use", channel)
	}
	old.parked = &parkedBegin{s, append([]byte(nil), p...)}
	return nil
}

// endOut ends a session, behind everything that was settled on it.
//
// Spec: 2.5.2.
func (c *Conn) endOut(channel uint16, p []byte) error {
	var e wire.End
	if err := e.Decode(p[wire.FrameHeaderSize:]); err != nil {
		return misuse("%w", err)
	}
	s := c.sessionOut(channel)
	if s == nil {
		return misuse("end on channel %d, where no session is", channel)
	}
	var a after
	s.mu.Lock()
	state := s.state
	switch state {
	case sessionMapped:
		s.flushLocked(&a)
		s.loseLocked(ours(e.Error), &a)
		s.state = sessionEndSent
	case sessionEndReceived:
		s.state = sessionGone
	default:
		s.mu.Unlock()
		return misuse("end on channel %d, which is not mapped", channel)
	}
	c.out.add(p, &a)
	parked := s.parked
	s.parked = nil
	s.mu.Unlock()
	a.run(c)
	if state == sessionEndReceived {
		c.mu.Lock()
		c.forgetLocked(s)
		if parked != nil {
			c.sessions[channel] = parked.s
		}
		c.mu.Unlock()
		if parked != nil {
			c.out.append(parked.frame)
		}
	}
	return nil
}

// ours is why a link or session of ours ended by our own frame: go-amqp's complaint
// if it has one.
func ours(e *wire.Error) error {
	if e == nil {
		return ErrClosed
	}
	return fmt.Errorf("ended by go-amqp: %w", e)
}

func (c *Conn) sessionOut(channel uint16) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[channel]
}
