package amqptest_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

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

// rejectedCounts is the delivery-count of a dead letter that was rejected.
func rejectedCounts(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(rejected, r.takeOne(n))
	m := deadLetter(t, p, n)
	if m.Header == nil {
		return "0"
	}
	return fmt.Sprint(m.Header.DeliveryCount)
}

// deadLetterAnnotations are the keys under x-opt that a broker adds to a dead
// letter.
func deadLetterAnnotations(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(rejected, r.takeOne(n))
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

// defaultLimit fails a message until it is a dead letter.
func defaultLimit(o queueOptions) func(*testing.T, *peer) string {
	o.dead = true
	return func(t *testing.T, p *peer) string {
		n := p.queue(t, o)
		put(t, p, n, text("a"))
		times, over := again(t, p, n, failed, func(times int) bool { return times == 40 })
		if over {
			return "none"
		}
		return fmt.Sprint(times)
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
