package amqptest_test

import (
	"github.com/amqpflow/amqpflow/internal/wire"
)

// ending reads until the peer ends something, and says what and why.
func (r *rawClient) ending() string {
	r.t.Helper()
	for {
		switch p := r.next().(type) {
		case nil:
			return "socket closed"
		case *wire.Close:
			return said("close", p.Error)
		case *wire.End:
			return said("end", p.Error)
		case *wire.Detach:
			return said("detach", p.Error)
		}
	}
}

// reaction is what comes back after something that may end the link, the
// session or the connection: that, or "ignored" if the session still answers.
func (r *rawClient) reaction() string {
	r.t.Helper()
	fence := r.fence(0)
	for {
		switch p := r.next().(type) {
		case *wire.Attach:
			if p.Name == fence {
				return "ignored"
			}
		case nil:
			return "socket closed"
		case *wire.Close:
			return said("close", p.Error)
		case *wire.End:
			return said("end", p.Error)
		case *wire.Detach:
			return said("detach", p.Error)
		}
	}
}

// fence attaches one more link: its answer, by the name returned, comes behind
// everything that the peer had to say to what was sent before.
func (r *rawClient) fence(channel uint16) (name string) {
	a := r.attach(wire.RoleSender)
	r.sendOn(channel, a)
	return a.Name
}
