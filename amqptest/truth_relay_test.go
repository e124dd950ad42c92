package amqptest_test

import (
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func relayToAQueue(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.To = &n.address
	return relay(t, p, m) + ", " + left(t, p, n)
}

func relayToNothing(t *testing.T, p *peer) string {
	n := missing(t, p)
	m := text("a")
	m.Properties.To = &n.address
	return relay(t, p, m)
}

func relayWithoutTo(t *testing.T, p *peer) string { return relay(t, p, text("a")) }

func relayToNonsense(t *testing.T, p *peer) string {
	m := text("a")
	m.Properties.To = new("/non/sense")
	removed(t, p, node{name: *m.Properties.To})
	return relay(t, p, m)
}

// toOfAnother publishes to a queue with the name of another in the message.
func toOfAnother(t *testing.T, p *peer) string {
	n, other := p.queue(t, queueOptions{}), p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.To = &other.address
	put(t, p, n, m)
	return left(t, p, n)
}

// relay publishes over an anonymous terminus.
func relay(t *testing.T, p *peer, m *amqp.Message) string {
	t.Helper()
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	r.send(a)
	await[wire.Flow](r)
	return r.publish(a.Handle, m)
}
