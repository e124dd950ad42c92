package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// maxGroups is how many different outcomes wait side by side.
const maxGroups = 64

// settlements are the dispositions of a session that were asked for and not yet
// queued, as exact runs of ids for each outcome.
type settlements struct {
	groups  []settledGroup
	n       int    // ids
	pushed  bool   // the writer was told that they are urgent
	scratch []byte // the state just encoded
}

// settledGroup is what gets one outcome.
type settledGroup struct {
	state []byte // encoded
	runs  runs
}

func (p *settlements) reset() { p.groups, p.n, p.pushed = p.groups[:0], 0, false }

// group returns the group for the encoded state, nil if there is none and no room
// for it.
func (p *settlements) group(state []byte) *settledGroup {
	for i := range p.groups {
		if bytes.Equal(p.groups[i].state, state) {
			return &p.groups[i]
		}
	}
	if len(p.groups) == maxGroups {
		return nil
	}
	if len(p.groups) < cap(p.groups) {
		p.groups = p.groups[:len(p.groups)+1]
	} else {
		p.groups = append(p.groups, settledGroup{})
	}
	g := &p.groups[len(p.groups)-1]
	g.state = append(g.state[:0], state...)
	g.runs.reset()
	return g
}

// Settle settles a delivery with the outcome st, nil for none. It returns once the
// disposition is noted: it leaves within a millisecond, with the next frame that is
// urgent, or when half a window waits, together with its neighbours. st is not kept.
// It returns an error that wraps ErrLinkLost if the link is not open or the delivery
// is not outstanding on it. For a delivery that was sent settled it only frees the
// slot in the window. One that the peer took back is settled with
// LinkOptions.Returned instead, and the error is ErrTakenBack.
//
// Spec: 2.6.12, 2.7.6.
func (l *Link) Settle(id uint32, st *wire.State) error {
	var a after
	s := l.s
	s.mu.Lock()
	err := l.lostLocked()
	if err == nil {
		err = l.settleLocked(id, st, &a)
		l.hastenLocked(&a)
	}
	s.mu.Unlock()
	a.run(s.c)
	return err
}

// SettleAll is Settle for many deliveries with one outcome. failed has the error of
// each that Settle would return one for, nil if there is none.
func (l *Link) SettleAll(ids []uint32, st *wire.State) (failed map[uint32]error) {
	var a after
	s := l.s
	s.mu.Lock()
	lost := l.lostLocked()
	for _, id := range ids {
		err := lost
		if err == nil {
			err = l.settleLocked(id, st, &a)
		}
		if err != nil {
			if failed == nil {
				failed = make(map[uint32]error)
			}
			failed[id] = err
		}
	}
	if lost == nil {
		l.hastenLocked(&a)
	}
	s.mu.Unlock()
	a.run(s.c)
	return failed
}

func (l *Link) settleLocked(id uint32, st *wire.State, a *after) error {
	s := l.s
	slot := s.in.get(id)
	if slot.link != l {
		return fmt.Errorf("%w: delivery %d is not outstanding", ErrLinkLost, id)
	}
	s.in.take(id)
	l.outstanding--
	if slot.settled {
		return nil
	}
	var err error
	if slot.back {
		st, err = l.returned(), ErrTakenBack
	}
	p := &s.settled
	p.scratch = appendFitting(p.scratch[:0], st, s.c.out.frameMax()-dispositionHead)
	g := p.group(p.scratch)
	if g == nil {
		s.flushLocked(a)
		g = p.group(p.scratch)
	}
	g.runs.add(id)
	p.n++
	if p.n == 1 {
		s.c.out.mark(s, false, a)
	}
	return err
}

func (l *Link) returned() *wire.State {
	if l.opts.Returned == nil {
		return &wire.State{Kind: wire.StateReleased}
	}
	return l.opts.Returned
}

// hastenLocked makes what waits urgent once it is half a window.
func (l *Link) hastenLocked(a *after) {
	if p := &l.s.settled; p.n > 0 && !p.pushed && p.n*2 >= l.window {
		p.pushed = true
		l.s.c.out.mark(l.s, true, a)
	}
}

// dispositionHead is how many octets of a disposition's frame are not its state.
const dispositionHead = 64

// appendFitting encodes st, leaving off what is too long for a frame: first the
// maps that come with it, then the end of the description.
func appendFitting(dst []byte, st *wire.State, limit int) []byte {
	start := len(dst)
	dst = wire.AppendState(dst, st)
	if len(dst)-start <= limit {
		return dst
	}
	short := *st
	short.Annotations = nil
	if short.Error != nil {
		e := fittingError(short.Error, limit-32)
		short.Error = e
	}
	return wire.AppendState(dst[:start], &short)
}

// fittingError cuts e to about limit octets.
func fittingError(e *wire.Error, limit int) *wire.Error {
	cut := &wire.Error{Condition: e.Condition, Description: e.Description}
	cut.Condition = cut.Condition[:min(len(cut.Condition), limit/2)]
	room := max(limit-len(cut.Condition)-16, 0)
	if len(cut.Description) > room {
		cut.Description = string(bytes.ToValidUTF8([]byte(cut.Description[:room]), nil))
	}
	return cut
}

// appendSettledLocked queues what was settled. Both locks are held.
func (s *Session) appendSettledLocked(o *outbox) {
	p := &s.settled
	if p.n == 0 {
		return
	}
	if !o.shut {
		for i := range p.groups {
			g := &p.groups[i]
			for _, r := range g.runs.list {
				o.buf = appendDisposition(o.buf, s.channel, wire.RoleReceiver, r, g.state)
			}
		}
	}
	p.reset()
}

// appendConfirmLocked queues our settlement of what the peer, as receiver, gave an
// outcome without settling it. Both locks are held.
func (s *Session) appendConfirmLocked(o *outbox) {
	if !o.shut {
		for _, r := range s.confirm.list {
			o.buf = appendDisposition(o.buf, s.channel, wire.RoleSender, r, nil)
		}
	}
	s.confirm.reset()
}

// appendDisposition appends a settled disposition of one run. state is encoded, nil
// for none.
//
// Spec: 2.7.6.
func appendDisposition(dst []byte, channel uint16, role wire.Role, r run, state []byte) []byte {
	start := len(dst)
	dst = wire.BeginFrame(dst, wire.TypeAMQP, channel)
	dst = append(dst, 0x00, 0x53, byte(wire.CodeDisposition), 0xd0, 0, 0, 0, 0, 0, 0, 0, 5)
	list := len(dst)
	dst = wire.AppendBool(dst, bool(role))
	dst = wire.AppendUint(dst, r.first)
	if r.last == r.first {
		dst = wire.AppendNull(dst)
	} else {
		dst = wire.AppendUint(dst, r.last)
	}
	dst = wire.AppendBool(dst, true)
	if state == nil {
		dst = wire.AppendNull(dst)
	} else {
		dst = append(dst, state...)
	}
	binary.BigEndian.PutUint32(dst[list-8:], uint32(len(dst)-list+4))
	wire.EndFrame(dst, start)
	return dst
}
