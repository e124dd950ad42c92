package amqptest_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func idOf(t *testing.T, x *wire.Transfer) string {
	t.Helper()
	var m amqp.Message
	require.NoError(t, m.UnmarshalBinary(x.Payload))
	return string(m.GetData())
}

// described is the body and the delivery-count.
func described(t *testing.T, x *wire.Transfer) string {
	t.Helper()
	var s wire.Sections
	require.NoError(t, s.Parse(x.Payload))
	if s.Header.DeliveryCount == 0 {
		return idOf(t, x)
	}
	return fmt.Sprintf("%s (count %d)", idOf(t, x), s.Header.DeliveryCount)
}

// left takes what is in n and says what it was. Brokers put a message back
// behind the answers to what came after it, so that an empty queue is asked
// again; over a link of its own, because Artemis does not answer every drain
// that comes on the heels of another.
func left(t *testing.T, p *peer, n node) string {
	t.Helper()
	r := openRaw(t, p)
	var all []*wire.Transfer
	for empty := 0; empty < 3; empty++ {
		h := r.receiver(n)
		if xs := r.drain(h, 100); len(xs) > 0 {
			r.settle(accepted, xs...)
			all, empty = append(all, xs...), 0
		}
		r.send(&wire.Detach{Handle: h, Closed: true})
		await[wire.Detach](r)
	}
	return listed(t, all)
}

func listed(t *testing.T, xs []*wire.Transfer) string {
	t.Helper()
	if len(xs) == 0 {
		return "nothing"
	}
	var s []string
	for _, x := range xs {
		s = append(s, described(t, x))
	}
	return strings.Join(s, " ")
}

// settled gives the one message of a queue that outcome, and says what is in
// the queue then.
func settled(s wire.State) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string { return settledIn(t, p, s, queueOptions{}) }
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

func classic(s wire.State) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string { return settledIn(t, p, s, queueOptions{classic: true}) }
}

// rejectedIsDead says where a rejected message is, and whether the reason is
// with it.
func rejectedIsDead(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(wire.State{Kind: wire.StateRejected, Error: &wire.Error{
		Condition: "truth:no-good", Description: "it is no good", Info: wire.Map{{Key: wire.Symbol("x-opt-why"), Value: "so"}},
	}}, r.takeOne(n))
	m := deadLetter(t, p, n)
	kept := "reason not kept"
	if s := fmt.Sprint(m.Annotations, m.ApplicationProperties); strings.Contains(s, "no-good") || strings.Contains(s, "x-opt-why") {
		kept = "reason kept"
	}
	return "dead letter, " + kept
}

// deadLetterAnnotations are the keys under x-opt that a broker adds to a dead
// letter.
func deadLetterAnnotations(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(wire.State{Kind: wire.StateRejected}, r.takeOne(n))
	var keys []string
	for k := range deadLetter(t, p, n).Annotations {
		if key := fmt.Sprint(k); strings.HasPrefix(key, "x-opt-") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return cmp.Or(strings.Join(keys, " "), "none")
}

// deadLetter waits for one of n.
func deadLetter(t *testing.T, p *peer, n node) *amqp.Message {
	t.Helper()
	r := openRaw(t, p)
	h := r.graves(p, n)
	r.send(r.credit(h, 1))
	x := await[wire.Transfer](r)
	r.settle(accepted, x)
	var m amqp.Message
	require.NoError(t, m.UnmarshalBinary(x.Payload))
	return &m
}

// limit settles a message in that way each time that it comes, and says when
// it is a dead letter.
func limit(s wire.State) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n := p.limited(t)
		put(t, p, n, text("a"))
		times, over := again(t, p, n, s, func(times int) bool { return times == 6 })
		if over {
			return "comes again and again"
		}
		return fmt.Sprintf("dead letter after %d", times)
	}
}

// again settles a message in that way each time that it comes from n, until it
// comes from where n's dead letters go, or enough of it.
func again(t *testing.T, p *peer, n node, s wire.State, enough func(times int) bool) (times int, over bool) {
	t.Helper()
	r := openRaw(t, p)
	here := r.receiver(n)
	grave := r.graves(p, n)
	r.send(r.credit(grave, 1), r.credit(here, 1))
	for {
		x := await[wire.Transfer](r)
		if x.Handle == grave {
			r.settle(accepted, x)
			return times, false
		}
		if times++; enough(times) {
			r.settle(accepted, x)
			return times, true
		}
		r.settle(s, x)
		r.send(r.credit(here, 1))
	}
}

// graves attaches to where dead letters and expired messages of n go.
func (r *rawClient) graves(p *peer, n node) uint32 {
	r.t.Helper()
	a := r.attach(wire.RoleReceiver)
	a.Source = p.graveOf(n)
	r.answer(a)
	return a.Handle
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

const later = time.Second

// when says whether something took about as long as later.
func when(began time.Time) string {
	if time.Since(began) > later*8/10 {
		return "then"
	}
	return "at once"
}

func deliveryTime(began time.Time) wire.Entry {
	return wire.Entry{Key: wire.Symbol("x-opt-delivery-time"), Value: began.Add(later).UnixMilli()}
}

// modifiedLater asks for a message to come back at a time.
func modifiedLater(t *testing.T, p *peer) string { return laterIn(t, p, queueOptions{}) }

func classicModifiedLater(t *testing.T, p *peer) string {
	return laterIn(t, p, queueOptions{classic: true})
}

func laterIn(t *testing.T, p *peer, o queueOptions) string {
	n := p.queue(t, o)
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	x := r.takeOne(n)
	began := time.Now()
	r.settle(wire.State{Kind: wire.StateModified, DeliveryFailed: true, Annotations: wire.Map{deliveryTime(began)}}, x)
	openRaw(t, p).takeOne(n)
	return when(began)
}

// publishedLater asks for a message to be delivered at a time.
func publishedLater(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	began := time.Now()
	m := text("a")
	m.Annotations = amqp.Annotations{"x-opt-delivery-time": began.Add(later).UnixMilli()}
	put(t, p, n, m)
	openRaw(t, p).takeOne(n)
	return when(began)
}

func publishedWithDelay(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	began := time.Now()
	m := text("a")
	m.Annotations = amqp.Annotations{"x-opt-delivery-delay": later.Milliseconds()}
	put(t, p, n, m)
	openRaw(t, p).takeOne(n)
	return when(began)
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
