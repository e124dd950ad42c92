package dataplane

import (
	"errors"

	"github.com/amqpflow/amqpflow/internal/wire"
)

var errNoState = errors.New("peer settled without an outcome")

// dispositionIn works off the peer's DISPOSITION.
//
// Spec: 2.6.12, 2.7.6.
func (r *reader) dispositionIn(channel uint16, body []byte) error {
	s, err := r.session(channel, "disposition")
	if err != nil {
		return err
	}
	d := &r.disposition
	if err := d.Decode(body); err != nil {
		return err
	}
	if int32(d.Last-d.First) < 0 {
		return violation("disposition of %d to %d", d.First, d.Last)
	}
	a := &r.later
	s.mu.Lock()
	if s.usable() {
		if d.Role == wire.RoleReceiver {
			s.resolveLocked(d, a)
		} else if d.Settled || d.State.Terminal() {
			s.takeBackLocked(d, a)
		}
	}
	s.mu.Unlock()
	r.after(a)
	return nil
}

// resolveLocked gives the outcome to the receipts of our deliveries in the range. An
// unsettled outcome comes from a receiver in mode second, which waits for us to
// settle.
func (s *Session) resolveLocked(d *wire.Disposition, a *after) {
	terminal := d.State.Terminal()
	if !terminal && !d.Settled {
		return
	}
	state := shared(&d.State)
	s.out.each(d.First, d.Last, func(id uint32, r *Receipt) {
		s.out.take(id)
		if terminal {
			r.state = state
		} else {
			r.err = both(ErrUncertain, errNoState)
		}
		if r.whole {
			a.done = append(a.done, r)
		} else {
			r.early = true // its payload is still needed
		}
		if !d.Settled {
			s.confirm.add(id)
		}
	})
	if len(s.confirm.list) > 0 {
		s.c.out.mark(s, true, a)
	}
}

var stateAccepted = wire.State{Kind: wire.StateAccepted}

// shared returns a state that any number of receipts may keep: a copy, except of
// the one that is the rule.
func shared(state *wire.State) *wire.State {
	if state.Kind == wire.StateAccepted {
		return &stateAccepted
	}
	kept := *state
	return &kept
}

// takeBackLocked notes what the peer, as sender, settled by itself, or gave an
// outcome: RabbitMQ releases what a consumer held for too long, and leaves it to
// the consumer to settle that.
func (s *Session) takeBackLocked(d *wire.Disposition, a *after) {
	s.in.each(d.First, d.Last, func(id uint32, v inSlot) {
		if v.back || v.settled {
			return
		}
		v.back = true
		s.in.set(id, v)
		a.notify = append(a.notify, v.link)
		v.link.back = append(v.link.back, id)
	})
}
