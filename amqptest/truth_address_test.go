package amqptest_test

import (
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"
)

// bareName attaches to a queue by its bare name.
func bareName(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, node{address: n.name, caps: n.caps}, amqp.ReceiverOptions{})
}

func bareNameSender(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachSender(t, p, node{address: n.name, caps: n.caps})
}

// slashedName attaches in RabbitMQ's way.
func slashedName(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, removed(t, p, node{name: "/queues/" + n.name, address: "/queues/" + n.name}), amqp.ReceiverOptions{})
}

// oldSlashedName attaches in the way of RabbitMQ 3.
func oldSlashedName(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, removed(t, p, node{name: "/queue/" + n.name, address: "/queue/" + n.name}), amqp.ReceiverOptions{})
}

func fromAnExchange(t *testing.T, p *peer) string {
	const address = "/exchanges/amq.direct/key"
	return attachReceiver(t, p, removed(t, p, node{name: address, address: address}), amqp.ReceiverOptions{})
}

// oddName has a space, a percent sign and a slash in the name of a queue.
func oddName(t *testing.T, p *peer) string {
	n := p.queueNamed(t, unique("truth")+" 50% a/b é", queueOptions{})
	put(t, p, n, text("a"))
	rcv := receiving(t, session(t, p), n, amqp.ReceiverOptions{})
	m, err := rcv.Receive(patient(t), nil)
	require.NoError(t, err)
	return string(m.GetData())
}
