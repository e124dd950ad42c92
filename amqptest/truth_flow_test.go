package amqptest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// granted is the credit that a sender gets when it attaches.
func granted(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target = n.target()
	r.send(a)
	return fmt.Sprint(await[wire.Flow](r).LinkCredit.Value)
}

func incomingWindow(t *testing.T, p *peer) string {
	return fmt.Sprint(openRaw(t, p).begin.IncomingWindow)
}

// noCredit attaches to a full queue and waits for an answer to something else.
func noCredit(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	h := r.receiver(n)
	fence := r.fence(0)
	for {
		switch f := r.next().(type) {
		case *wire.Transfer:
			return "sent without credit"
		case *wire.Attach:
			if f.Name == fence {
				r.send(r.credit(h, 1))
				await[wire.Transfer](r)
				return "nothing, then with credit"
			}
		}
	}
}

// creditOfTwo is granted for a queue of three.
func creditOfTwo(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"), text("c"))
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 2))
	xs := []*wire.Transfer{await[wire.Transfer](r), await[wire.Transfer](r)}
	fence := r.fence(0)
	for {
		switch f := r.next().(type) {
		case *wire.Transfer:
			xs = append(xs, f)
		case *wire.Attach:
			if f.Name == fence {
				return listed(t, xs)
			}
		}
	}
}

// drained asks a queue of one for five.
func drained(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	return listed(t, r.drain(r.receiver(n), 5))
}

// drainCounts says where the delivery-count stands after a drain.
func drainCounts(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	initial := r.answer(a).InitialDeliveryCount.Value
	f := r.credit(a.Handle, 5)
	f.Drain = true
	r.send(f)
	for {
		if f := await[wire.Flow](r); f.Handle.Set {
			return fmt.Sprintf("count %d, credit %d, drain %v", f.DeliveryCount.Value-initial, f.LinkCredit.Value, f.Drain)
		}
	}
}

func drainOfNothing(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	return listed(t, r.drain(r.receiver(n), 5))
}

// creditAfterDrain grants credit again.
func creditAfterDrain(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	r.answer(a)
	r.drain(a.Handle, 5)
	put(t, p, n, text("a"))
	r.send(r.credit(a.Handle, 1))
	return described(t, await[wire.Transfer](r))
}

// echoOfALink asks for the link's state, and looks for the answer until a
// message comes.
func echoOfALink(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.receiver(n)
	f := r.credit(h, 3)
	f.Echo = true
	r.send(f)
	put(t, p, n, text("a"))
	for {
		switch f := r.next().(type) {
		case *wire.Flow:
			return fmt.Sprintf("flow with credit %d", f.LinkCredit.Value)
		case *wire.Transfer:
			return "no answer"
		}
	}
}

// echoOfASession asks for the session's state.
func echoOfASession(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	f := r.flow()
	f.Echo = true
	r.send(f)
	fence := r.fence(0)
	for {
		switch f := r.next().(type) {
		case *wire.Flow:
			return "flow"
		case *wire.Attach:
			if f.Name == fence {
				return "no answer"
			}
		}
	}
}

// available is what an echo says is in a queue of three, one of which has come.
func available(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"), text("c"))
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 1))
	await[wire.Transfer](r)
	f := r.credit(h, 0)
	f.Echo = true
	r.send(f, r.credit(h, 1))
	for {
		switch f := r.next().(type) {
		case *wire.Flow:
			if f.Available.Set {
				return fmt.Sprint(f.Available.Value)
			}
			return "not said"
		case *wire.Transfer:
			return "no answer"
		}
	}
}

// creditTakenBack grants five and takes them back before anything is there.
func creditTakenBack(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 5), r.credit(h, 0))
	require.Equal(t, "ignored", r.reaction())
	put(t, p, n, text("a"))
	fence := r.fence(0)
	for {
		switch f := r.next().(type) {
		case *wire.Transfer:
			return "sent all the same"
		case *wire.Attach:
			if f.Name == fence {
				return "nothing, " + left(t, p, n)
			}
		}
	}
}

// sessionWindow lets one frame come, whatever the link's credit.
func sessionWindow(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"))
	r := openRaw(t, p)
	h := r.receiver(n)
	f := r.credit(h, 2)
	f.IncomingWindow = 1
	r.send(f)
	await[wire.Transfer](r)
	fence := r.fence(0)
	for {
		switch f := r.next().(type) {
		case *wire.Transfer:
			return "not kept"
		case *wire.Attach:
			if f.Name == fence {
				r.send(r.flow())
				await[wire.Transfer](r)
				return "kept"
			}
		}
	}
}

// smallFrames says whether deliveries keep to the client's max-frame-size.
func smallFrames(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Data = [][]byte{make([]byte, 10_000)}
	put(t, p, n, m)
	r := dialRaw(t, p).authenticated(p)
	const most = 512
	r.send(&wire.Open{ContainerID: unique("truth"), MaxFrameSize: most, ChannelMax: 10})
	r.open = *await[wire.Open](r)
	r.send(&wire.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 10})
	r.begin = *await[wire.Begin](r)
	h := r.receiver(n)
	r.send(r.credit(h, 1))
	for {
		f := r.frame()
		require.NotNil(t, f)
		if len(f.body)+wire.FrameHeaderSize > most {
			return "not kept"
		}
		var x wire.Transfer
		if code, _, err := wire.PeekDescriptor(f.body); err == nil && code == wire.CodeTransfer {
			require.NoError(t, x.Decode(f.body))
			if !x.More {
				return "kept"
			}
		}
	}
}
