package amqpflow

import (
	"slices"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A delivery that the peer took back is answered for by whatever settles it: the
// data plane writes what the peer needs, and says that the outcome is lost. So
// nobody has to know; takenBack only makes it happen soon.

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

// takenBack drops deliveries that the peer settled by itself where no handler has
// begun them, and only then cancels handlers, which else might begin one of them,
// and ends holds. A delivery may be on its way from one to the next of these: what
// the data plane knows is found there.
func (s *Subscription) takenBack(r *receiving, ids []uint32) {
	begun := slices.DeleteFunc(ids, func(id uint32) bool { return s.drop(r, id) })
	for _, id := range begun {
		for _, w := range s.workers {
			w.takenBack(r, id)
		}
		s.holds.takenBack(r, id)
		s.reader.takenBack(r, id)
	}
}

// drop gives up a delivery that no handler has begun, and says whether that is so.
func (s *Subscription) drop(r *receiving, id uint32) bool {
	for _, in := range s.inboxes {
		if d := in.remove(r, id); d != nil {
			s.giveUp(d)
			return true
		}
	}
	return false
}

// giveUp answers for a delivery that nobody else will: what a Stream has yielded,
// the user may settle, or not.
func (s *Subscription) giveUp(d *Delivery) {
	_ = d.from.link.Settle(d.id, stateReleased) // the error is that it was taken back
	s.reader.done(d)
	d.from.grant(false)
}

// returned is what answers for a delivery that the peer took back, and frees its
// place in the window. RabbitMQ sends nothing more on the link until it has that,
// and only accepted will do: released, its consumer stays as it is. Its queue has
// the message already.
func (cn *connection) returned() *wire.State {
	if cn.dialect == address.RabbitMQ {
		return stateAccepted
	}
	return stateReleased
}
