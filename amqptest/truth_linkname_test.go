package amqptest_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// sameNameTwice attaches two receivers of one name in one session.
func sameNameTwice(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a, b := r.attach(wire.RoleReceiver), r.attach(wire.RoleReceiver)
	a.Source, b.Source, b.Name = n.source(), n.source(), a.Name
	r.answer(a)
	r.send(b)
	return r.stolen(0, b)
}

// sameNameInAnotherSession attaches it on channel 1.
func sameNameInAnotherSession(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a, b := r.attach(wire.RoleReceiver), r.attach(wire.RoleReceiver)
	a.Source, b.Source, b.Name = n.source(), n.source(), a.Name
	r.answer(a)
	r.sendOn(1, &wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10})
	await[wire.Begin](r)
	r.sendOn(1, b)
	return r.stolen(1, b)
}

// sameNameBothWays attaches a sender and a receiver of one name.
func sameNameBothWays(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a, b := r.attach(wire.RoleReceiver), r.attach(wire.RoleSender)
	a.Source, b.Target, b.Name = n.source(), n.target(), a.Name
	r.answer(a)
	r.send(b)
	return r.stolen(0, b)
}

// sameNameAgain attaches a link again after it was closed.
func sameNameAgain(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	r.answer(a)
	r.send(&wire.Detach{Handle: a.Handle, Closed: true})
	await[wire.Detach](r)
	r.send(a)
	return r.attached(a)
}

// stolen says what becomes of the second of two links of one name, on that
// channel.
func (r *rawClient) stolen(channel uint16, second *wire.Attach) string {
	var seen []string
	fence := r.fence(channel)
	for {
		switch f := r.next().(type) {
		case *wire.Attach:
			if f.Name == fence {
				return cmp.Or(strings.Join(seen, ", "), "no answer")
			}
			seen = append(seen, "attached")
		case *wire.Detach:
			which := "first "
			if f.Handle == second.Handle {
				which = "second "
			}
			seen = append(seen, which+said("detach", f.Error))
		case *wire.End:
			return strings.Join(append(seen, said("end", f.Error)), ", ")
		case *wire.Close:
			return strings.Join(append(seen, said("close", f.Error)), ", ")
		case nil:
			return strings.Join(append(seen, "socket closed"), ", ")
		}
	}
}
