package amqptest_test

import (
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func publishToATopic(t *testing.T, p *peer) string {
	n := p.topic(t)
	snd, err := session(t, p).NewSender(patient(t), n.address, &amqp.SenderOptions{TargetCapabilities: n.caps})
	if err != nil {
		return why(err)
	}
	return publish(t, snd, text("a"))
}

// twoSubscribers of a topic.
func twoSubscribers(t *testing.T, p *peer) string {
	n := p.topic(t)
	s := session(t, p)
	var rcvs []*amqp.Receiver
	for range 2 {
		rcv, err := s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps})
		if err != nil {
			return why(err)
		}
		rcvs = append(rcvs, rcv)
	}
	put(t, p, n, text("a"))
	var got []string
	for _, rcv := range rcvs {
		m, err := rcv.Receive(patient(t), nil)
		require.NoError(t, err)
		got = append(got, string(m.GetData()))
	}
	return strings.Join(got, " and ")
}

// lateSubscriber comes after the message.
func lateSubscriber(t *testing.T, p *peer) string {
	n := p.topic(t)
	s := session(t, p)
	if _, err := s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps}); err != nil {
		return why(err)
	}
	put(t, p, n, text("a"))
	return left(t, p, n)
}

// pattern subscribes to every topic of one more word.
func pattern(t *testing.T, p *peer) string {
	n := p.topic(t)
	every, one := removed(t, p, node{name: n.name + ".*"}), removed(t, p, node{name: n.name + ".a", caps: n.caps})
	every.address, one.address = n.address+".*", n.address+".a"
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = node{address: every.address, caps: n.caps}.source()
	if r.answer(a).Source == nil {
		return r.ending()
	}
	put(t, p, one, text("a"))
	return listed(t, r.drain(a.Handle, 10))
}

// bound publishes to an exchange to which a queue is bound by a pattern.
func bound(t *testing.T, p *peer) string {
	key := unique("truth-key")
	n := p.queue(t, queueOptions{bind: "amq.topic/" + key + ".#"})
	put(t, p, node{address: "/exchanges/amq.topic/" + key + ".a.b"}, text("a"))
	return left(t, p, n)
}

// topicAsAQueue attaches with the capability of the other kind.
func topicAsAQueue(t *testing.T, p *peer) string {
	n := p.topic(t)
	s := session(t, p)
	if _, err := s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps}); err != nil {
		return why(err)
	}
	return attachReceiver(t, p, node{address: n.address, caps: []string{"queue"}}, amqp.ReceiverOptions{})
}

func queueAsATopic(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, node{address: n.address, caps: []string{"topic"}}, amqp.ReceiverOptions{})
}

// durable subscribes to a topic in a way that outlives the link, loses the
// link in that way, and says what the subscription has for it afterwards.
func durable(lose func(r *rawClient, handle uint32)) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n, container, link := p.topic(t), unique("container"), unique("link")
		r := openRawAs(t, p, container)
		a := r.durably(n, link)
		if b := r.answer(a); b.Source == nil {
			return r.ending()
		}
		lose(r, a.Handle)
		put(t, p, n, text("a"))
		byClose(r, 0)
		again := openRawAs(t, p, container)
		b := again.durably(n, link)
		again.answer(b)
		xs := again.drain(b.Handle, 10)
		again.settle(accepted, xs...)
		again.send(&wire.Detach{Handle: b.Handle, Closed: true})
		await[wire.Detach](again)
		return listed(t, xs)
	}
}

func (r *rawClient) durably(n node, name string) *wire.Attach {
	a := r.attach(wire.RoleReceiver)
	a.Name, a.Source = name, n.source()
	a.Source.Durable, a.Source.ExpiryPolicy = wire.DurableUnsettledState, wire.ExpireNever
	return a
}
