package amqpflow

import (
	"fmt"

	"github.com/amqpflow/amqpflow/internal/address"
)

var errTakenBack = fmt.Errorf("%w: the peer took the delivery back", ErrLinkLost)

// takenBack returns the deliveries that the peer settled by itself.
func (r *receiving) takenBack() (all []uint32) {
	var ids [receiveBatch]uint32
	for {
		n := r.link.TakenBack(ids[:])
		if n == 0 {
			return all
		}
		all = append(all, ids[:n]...)
	}
}

// takenBack cancels the handler whose delivery the peer settled by itself, or
// drops it where no handler has begun it.
func (s *Subscription) takenBack(r *receiving, id uint32) {
	for _, in := range s.inboxes {
		if d := in.remove(r, id); d != nil {
			s.giveUp(d)
			return
		}
	}
	if s.holds.takenBack(r, id) {
		return
	}
	for _, w := range s.workers {
		if w.takenBack(r, id) {
			return
		}
	}
	s.reader.takenBack(r, id)
}

// giveUp answers for a delivery that the peer took back, which frees its place
// in the window. RabbitMQ sends nothing more on the link until it has that, and
// only accepted will do: released, its consumer stays as it is. Its queue has the
// message already.
func (s *Subscription) giveUp(d *Delivery) {
	d.takenBack()
	s.c.log.Warn("delivery taken back by the peer", logAddress, string(s.addr), logAttempt, d.Attempt())
	answer := stateReleased
	if d.from.conn.dialect == address.RabbitMQ {
		answer = stateAccepted
	}
	err := d.from.link.Settle(d.id, answer)
	s.reader.done(d)
	if err == nil {
		d.from.grant(false)
	}
}

// takenBack notes that the peer took the delivery back before it was settled.
func (d *Delivery) takenBack() {
	if !d.status.CompareAndSwap(statusOpen, statusTakenBack) {
		d.status.CompareAndSwap(statusHeld, statusTakenBack)
	}
}
