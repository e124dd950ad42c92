package dataplane

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// SendOptions of one message.
type SendOptions struct {
	Format  uint32 // message-format
	Settled bool   // sent settled: there will be no outcome
	// Owner, if not nil, is told when the receipt's Done is closed, once and with
	// no lock held, by a goroutine that must not be kept waiting. That may be
	// before Send returns; it is not told where Send returns no receipt.
	Owner interface{ Resolved(r *Receipt) }
}

// sending is what a link of role sender has.
type sending struct {
	first      uint32 // the initial delivery-count in our ATTACH
	sent       uint32 // delivery-count
	creditEnd  uint32 // the delivery-count up to which the peer takes deliveries
	maxMessage uint64 // 0: no limit

	line    []*Receipt // messages that wait or are half out, in order
	queued  bool       // the link stands in the session's waiting
	started bool       // the first of line is half out

	peerDrain bool // the peer wants unused credit back
	drainDue  bool // and has no answer yet
}

// Receipt is what becomes of one message. Its methods may be called from any
// goroutine.
type Receipt struct {
	l    *Link
	done chan struct{} // closed by whoever removes it from the session's ring

	// Set before done is closed.
	state *wire.State // nil without an outcome
	err   error

	// The session's lock guards the rest.
	o       SendOptions
	payload []byte
	off     int // octets queued
	id      uint32
	begun   bool          // the first frame is queued
	whole   bool          // the last frame is queued
	early   bool          // the outcome came before that
	sent    chan struct{} // closed when Send need not wait any more; nil if it did not
	sendErr error         // set before sent is closed
}

// Done is closed when the outcome is known, or known to stay unknown. For a message
// that was sent settled that is when its last frame is queued.
func (r *Receipt) Done() <-chan struct{} { return r.done }

// resolve tells that the outcome is known. No lock may be held.
func (r *Receipt) resolve() {
	close(r.done)
	if r.o.Owner != nil {
		r.o.Owner.Resolved(r)
	}
}

// Outcome returns the peer's outcome. It is valid after Done if Err is nil; for a
// message that was sent settled it has no kind.
func (r *Receipt) Outcome() wire.State {
	select {
	case <-r.done:
		if r.state != nil {
			return *r.state
		}
	default:
	}
	return wire.State{}
}

// Err returns nil before Done and if there is an outcome. Otherwise it wraps
// ErrUncertain: the link was lost, or the peer settled without an outcome.
func (r *Receipt) Err() error {
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}

// Send queues payload, an encoded message, as one delivery. It waits for the peer's
// credit and window and for room in the write buffer, behind the messages sent on
// the link before, and returns when the last frame is queued; payload may be reused
// then. ctx bounds the wait until the first frame is queued: then the error wraps
// ErrNotSent and ctx's. If ctx ends after that, Send returns the receipt together
// with an error that wraps ErrUncertain and ctx's; the message is finished all the
// same, and payload must not be touched until Done is closed and never if it ends in
// an error. A loss of the link gives the same two. A payload over the peer's
// max-message-size is a *SizeError.
//
// Spec: 2.6.14, 2.7.5.
func (l *Link) Send(ctx context.Context, payload []byte, o SendOptions) (*Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, both(ErrNotSent, err)
	}
	r := &Receipt{l: l, done: make(chan struct{}), o: o, payload: payload}
	var a after
	s := l.s
	s.mu.Lock()
	if err := l.refuseLocked(len(payload)); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	if len(l.line) == 0 && l.transmitLocked(r, &a) == blockedNot {
		s.mu.Unlock()
		a.run(s.c)
		return r, nil
	}
	r.sent = make(chan struct{})
	l.waitLocked(r, &a)
	s.mu.Unlock()
	a.run(s.c)

	select {
	case <-r.sent:
		if r.sendErr != nil && !r.begun {
			return nil, r.sendErr
		}
		return r, r.sendErr
	case <-ctx.Done():
		return l.giveUp(r, ctx.Err())
	}
}

// refuseLocked returns why a payload of n octets cannot be sent at all.
func (l *Link) refuseLocked(n int) error {
	if err := l.lostLocked(); err != nil {
		return both(ErrNotSent, err)
	}
	if l.maxMessage > 0 && uint64(n) > l.maxMessage {
		return &SizeError{Size: n, Limit: l.maxMessage}
	}
	return nil
}

// waitLocked puts r into the line. If nothing but room is missing, the writer goes
// on with it after its next write.
func (l *Link) waitLocked(r *Receipt, a *after) {
	s := l.s
	l.line = append(l.line, r)
	if !l.queued {
		l.queued = true
		s.waiting = append(s.waiting, l)
	}
	if l.sendCreditLocked() > 0 || l.started {
		s.pump = true
		s.c.out.mark(s, true, a)
	}
}

// giveUp ends the caller's wait for r with the context's error.
func (l *Link) giveUp(r *Receipt, cause error) (*Receipt, error) {
	s := l.s
	var a after
	s.mu.Lock()
	sent, err := l.giveUpLocked(r, cause, &a)
	s.mu.Unlock()
	a.run(s.c)
	return sent, err
}

func (l *Link) giveUpLocked(r *Receipt, cause error, a *after) (*Receipt, error) {
	switch {
	case r.whole:
		return r, nil
	case r.sendErr != nil && r.begun:
		return r, r.sendErr
	case r.sendErr != nil:
		return nil, r.sendErr
	case r.begun:
		return r, both(ErrUncertain, cause)
	}
	if i := slices.Index(l.line, r); i >= 0 {
		l.line = slices.Delete(l.line, i, i+1)
	}
	l.settleDrainLocked()
	if len(l.s.owing) > 0 {
		l.s.c.out.mark(l.s, true, a)
	}
	return nil, both(ErrNotSent, cause)
}

func (l *Link) sendCreditLocked() uint32 { return ahead(l.creditEnd, l.sent) }

// endSendingLocked ends every send and receipt of the link.
func (l *Link) endSendingLocked(a *after) {
	for _, r := range l.line {
		if r.begun {
			r.sendErr = both(ErrUncertain, l.err)
		} else {
			r.sendErr = both(ErrNotSent, both(ErrLinkLost, l.err))
		}
		if r.begun && r.o.Settled {
			r.err = r.sendErr
		}
		if r.begun && r.o.Settled || r.early {
			a.done = append(a.done, r)
		}
		a.close = append(a.close, r.sent)
	}
	l.line, l.started = nil, false
	l.s.out.all(func(id uint32, r *Receipt) {
		if r.l == l {
			l.s.out.take(id)
			r.err = both(ErrUncertain, l.err)
			a.done = append(a.done, r)
		}
	})
}

// transferHead is how many octets of a transfer's frame are not payload, at most.
const transferHead = 64

// appendTransfer queues the next frame of r, with n octets of payload. Both locks
// are held.
func (l *Link) appendTransfer(o *outbox, r *Receipt, n int, first, more bool) {
	t := wire.Transfer{Handle: l.handle, More: more}
	var tag [4]byte
	if first {
		binary.BigEndian.PutUint32(tag[:], r.id)
		t.DeliveryID = wire.Some(r.id)
		t.DeliveryTag = tag[:]
		t.MessageFormat = wire.Some(r.o.Format)
		t.Settled = r.o.Settled
	}
	start := len(o.buf)
	o.buf = t.Append(wire.BeginFrame(o.buf, wire.TypeAMQP, l.s.channel))
	o.buf = append(o.buf, r.payload[r.off:r.off+n]...)
	wire.EndFrame(o.buf, start)
}
