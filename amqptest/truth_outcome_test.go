package amqptest_test

import (
	"fmt"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// settled gives the one message of a queue that outcome, and says what is in
// the queue then.
func settled(s wire.State) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string { return settledIn(t, p, s, queueOptions{}) }
}

func classic(s wire.State) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string { return settledIn(t, p, s, queueOptions{classic: true}) }
}

func settledIn(t *testing.T, p *peer, s wire.State, o queueOptions) string {
	n := p.queue(t, o)
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(s, r.takeOne(n))
	if s := r.reaction(); s != "ignored" {
		return s
	}
	return left(t, p, n)
}

// undeliverableHere says who gets a message that one link has said so of.
func undeliverableHere(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	here := r.receiver(n)
	r.send(r.credit(here, 1))
	x := await[wire.Transfer](r)
	r.send(r.credit(here, 1))
	other, grave := r.receiver(n), r.graves(p, n)
	r.send(r.credit(other, 1), r.credit(grave, 1))
	r.settle(wire.State{Kind: wire.StateModified, UndeliverableHere: true}, x)
	x = await[wire.Transfer](r)
	r.settle(accepted, x)
	switch x.Handle {
	case here:
		return "comes back here"
	case other:
		return "another link gets it"
	}
	return "dead letter"
}

// modifiedAnnotations come back with the message or not.
func modifiedAnnotations(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Annotations = amqp.Annotations{"x-opt-old": "1", "x-opt-both": "old"}
	put(t, p, n, m)
	r := openRaw(t, p)
	r.settle(wire.State{Kind: wire.StateModified, Annotations: wire.Map{
		{Key: wire.Symbol("x-opt-new"), Value: "2"}, {Key: wire.Symbol("x-opt-both"), Value: "new"},
	}}, r.takeOne(n))
	var back amqp.Message
	require.NoError(t, back.UnmarshalBinary(openRaw(t, p).takeOne(n).Payload))
	return fmt.Sprintf("old %v, both %v, new %v", back.Annotations["x-opt-old"], back.Annotations["x-opt-both"], back.Annotations["x-opt-new"])
}

// modifiedReserved has an annotation under a key without x-opt.
func modifiedReserved(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(wire.State{Kind: wire.StateModified, Annotations: wire.Map{{Key: wire.Symbol("color"), Value: "red"}}}, r.takeOne(n))
	if s := r.reaction(); s != "ignored" {
		return s
	}
	var back amqp.Message
	require.NoError(t, back.UnmarshalBinary(openRaw(t, p).takeOne(n).Payload))
	return fmt.Sprint("color ", back.Annotations["color"])
}

// three takes a, b and c, gives them those outcomes and says in which order
// they are in the queue then.
func three(states ...wire.State) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n := p.queue(t, queueOptions{})
		put(t, p, n, text("a"), text("b"), text("c"), text("d"))
		r := openRaw(t, p)
		h := r.receiver(n)
		r.send(r.credit(h, 3))
		var xs []*wire.Transfer
		for range 3 {
			xs = append(xs, await[wire.Transfer](r))
		}
		for i, s := range states {
			r.settle(s, xs[len(states)-1-i])
		}
		if s := r.reaction(); s != "ignored" {
			return s
		}
		if len(states) < len(xs) {
			r.settle(accepted, xs[len(states):]...)
			r.reaction()
		}
		return left(t, p, n)
	}
}

// inARange settles three deliveries with one disposition.
func inARange(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"), text("c"), text("d"))
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 3))
	first := await[wire.Transfer](r)
	await[wire.Transfer](r)
	last := await[wire.Transfer](r)
	r.send(&wire.Disposition{
		Role: wire.RoleReceiver, First: first.DeliveryID.Value, Last: last.DeliveryID.Value, Settled: true, State: accepted,
	})
	if s := r.reaction(); s != "ignored" {
		return s
	}
	return left(t, p, n)
}

// unsettledOutcome says accepted without settling, and what the peer does.
func unsettledOutcome(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source, a.RcvSettleMode = n.source(), wire.RcvSecond
	if r.answer(a).Source == nil {
		return r.ending()
	}
	r.send(r.credit(a.Handle, 1))
	x := await[wire.Transfer](r)
	r.send(&wire.Disposition{Role: wire.RoleReceiver, First: x.DeliveryID.Value, Last: x.DeliveryID.Value, State: accepted})
	fence := r.fence(0)
	for {
		switch f := r.next().(type) {
		case *wire.Disposition:
			if f.Settled {
				return "peer settles, " + left(t, p, n)
			}
			return "peer answers, " + left(t, p, n)
		case *wire.Attach:
			if f.Name == fence {
				return "no answer, " + left(t, p, n)
			}
		case *wire.Detach:
			return said("detach", f.Error)
		case *wire.End:
			return said("end", f.Error)
		case nil:
			return "socket closed"
		}
	}
}

// preSettled takes a message over a link on which everything comes settled.
func preSettled(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source, a.SndSettleMode = n.source(), wire.SndSettled
	r.answer(a)
	r.send(r.credit(a.Handle, 1))
	s := "unsettled"
	if await[wire.Transfer](r).Settled {
		s = "settled"
	}
	r.send(&wire.Detach{Handle: a.Handle, Closed: true})
	await[wire.Detach](r)
	return s + ", then " + left(t, p, n)
}
