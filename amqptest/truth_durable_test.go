package amqptest_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// durable subscribes to a topic in a way that outlives the link, loses the
// link in that way, and says what the subscription has for it afterwards.
func durable(lose func(r *rawClient, handle uint32)) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n, container, link := p.topic(t), unique("container"), unique("link")
		r := openRawAs(t, p, container)
		a := r.durable(n, link)
		if b := r.answer(a); b.Source == nil {
			return r.ending()
		}
		lose(r, a.Handle)
		put(t, p, n, text("a"))
		byClose(r, 0)
		again := openRawAs(t, p, container)
		b := again.durable(n, link)
		again.answer(b)
		xs := again.drain(b.Handle, 10)
		again.settle(accepted, xs...)
		again.send(&wire.Detach{Handle: b.Handle, Closed: true})
		await[wire.Detach](again)
		return listed(t, xs)
	}
}

func (r *rawClient) durable(n node, name string) *wire.Attach {
	a := r.attach(wire.RoleReceiver)
	a.Name, a.Source = name, n.source()
	a.Source.Durable, a.Source.ExpiryPolicy = wire.DurableUnsettledState, wire.ExpireNever
	return a
}

// userOfAnother publishes with a user-id that is not the connection's.
func userOfAnother(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.UserID = []byte("somebody")
	r := openRaw(t, p)
	return r.publish(r.sender(n), m)
}

func ownUser(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	u, err := url.Parse(p.url)
	require.NoError(t, err)
	m := text("a")
	m.Properties.UserID = []byte(u.User.Username())
	r := openRaw(t, p)
	return r.publish(r.sender(n), m)
}

// toOfAnother publishes to a queue with the name of another in the message.
func toOfAnother(t *testing.T, p *peer) string {
	n, other := p.queue(t, queueOptions{}), p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.To = &other.address
	put(t, p, n, m)
	return left(t, p, n)
}

// defaultLimit fails a message until it is a dead letter.
func defaultLimit(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true})
	put(t, p, n, text("a"))
	times, over := again(t, p, n, failed, func(times int) bool { return times == 40 })
	if over {
		return "none"
	}
	return fmt.Sprint(times)
}

// fullAndDrops publishes three messages to a queue of two that drops the first
// then.
func fullAndDrops(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{max: 2, drop: true})
	put(t, p, n, text("a"), text("b"), text("c"))
	return left(t, p, n)
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
