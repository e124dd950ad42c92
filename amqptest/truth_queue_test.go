package amqptest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// competing consumers have a credit of one each.
func competing(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	a, b := openRaw(t, p), openRaw(t, p)
	ha, hb := a.receiver(n), b.receiver(n)
	a.send(a.credit(ha, 1))
	b.send(b.credit(hb, 1))
	put(t, p, n, text("a"), text("b"))
	got := []string{idOf(t, await[wire.Transfer](a)), idOf(t, await[wire.Transfer](b))}
	slices.Sort(got)
	return strings.Join(got, " and ")
}

// priorities says in which order messages of priorities 0, 4 and 9 come.
func priorities(t *testing.T, p *peer) string { return inOrder(t, p, queueOptions{}) }

func classicPriorities(t *testing.T, p *peer) string {
	return inOrder(t, p, queueOptions{classic: true})
}

func inOrder(t *testing.T, p *peer, o queueOptions) string {
	n := p.queue(t, o)
	var ms []*amqp.Message
	for _, priority := range []uint8{0, 4, 9} {
		m := text(fmt.Sprint(priority))
		m.Header = &amqp.MessageHeader{Priority: priority}
		ms = append(ms, m)
	}
	put(t, p, n, ms...)
	return left(t, p, n)
}

// duplicate messages have one message-id.
func duplicate(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("a"))
	return left(t, p, n)
}

// expired waits for a message with a time to live to go, giving it back each
// time it comes.
func expired(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true, expires: true})
	const ttl = 300 * time.Millisecond
	m := text("a")
	m.Header = &amqp.MessageHeader{TTL: ttl, Priority: 4}
	began := time.Now()
	put(t, p, n, m)
	_, over := again(t, p, n, released, func(int) bool { return time.Since(began) > patience })
	if over {
		return "still there"
	}
	require.Greater(t, time.Since(began), ttl*9/10)
	return "gone"
}

// expiredBefore has an absolute-expiry-time that is past when it is published.
func expiredBefore(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.AbsoluteExpiryTime = new(time.Now().Add(-time.Hour))
	put(t, p, n, m)
	return left(t, p, n)
}

// full publishes to a queue that takes no more.
func full(t *testing.T, p *peer) string {
	n, m := p.full(t, false)
	r := openRaw(t, p)
	h := r.sender(n)
	for range 40 {
		if s := r.publish(h, m()); s != "accepted" {
			return s
		}
	}
	return "accepted"
}

// blocked attaches to a queue that takes no more, and is one that says so by
// credit.
func blocked(t *testing.T, p *peer) string {
	n, m := p.full(t, true)
	r := openRaw(t, p)
	h := r.sender(n)
	for range min(40, r.granted) {
		if s := r.publish(h, m()); s != "accepted" {
			return s
		}
	}
	late := openRaw(t, p)
	a := late.attach(wire.RoleSender)
	a.Target = n.target()
	late.send(a)
	late.fence(0) // which is another link, and gets credit
	for {
		f := await[wire.Flow](late)
		if f.LinkCredit.Value > 0 && f.Handle.Value == a.Handle {
			return "credit"
		}
		if f.LinkCredit.Value > 0 {
			return "no credit"
		}
	}
}

// fullAndDrops publishes three messages to a queue of two that drops the first
// then.
func fullAndDrops(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{max: 2, drop: true})
	put(t, p, n, text("a"), text("b"), text("c"))
	return left(t, p, n)
}

// browse looks at a queue without taking from it.
func browse(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"))
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	a.Source.DistributionMode = "copy"
	r.answer(a)
	seen := r.drain(a.Handle, 10)
	for _, x := range seen {
		if !x.Settled {
			r.settle(accepted, x)
		}
	}
	require.Equal(t, "ignored", r.reaction())
	return "saw " + listed(t, seen) + ", left " + left(t, p, n)
}

// browsedWhileHeld looks at a queue whose first message a consumer has.
func browsedWhileHeld(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"))
	openRaw(t, p).takeOne(n)
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	a.Source.DistributionMode = "copy"
	r.answer(a)
	return "saw " + listed(t, r.drain(a.Handle, 10))
}
