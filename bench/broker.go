package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/Azure/go-amqp"
)

// queues is what differs between brokers in making and deleting a queue.
type queues interface {
	create(ctx context.Context, name string) error
	remove(ctx context.Context, name string) error
	node(name string) string // the queue's address on the wire
	capabilities() []string  // of a terminus on it
}

// brokerPeer is a real broker. Every run gets a queue of its own, deleted
// after the run: what one run leaves behind cannot slow down another.
type brokerPeer struct {
	url     string
	product string
	conn    *amqp.Conn
	session *amqp.Session
	queues  queues
	made    int
}

// openBroker connects for management and preloading, and finds out by the
// peer's properties which broker it is.
func openBroker(ctx context.Context, url, queueType string) (*brokerPeer, error) {
	conn, session, err := place{url: url}.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	b := &brokerPeer{url: url, conn: conn, session: session}
	switch product, _ := conn.Properties()["product"].(string); product {
	case "apache-activemq-artemis":
		b.product = "ActiveMQ Artemis"
		b.queues, err = newArtemisQueues(ctx, session)
	case "RabbitMQ":
		b.product = "RabbitMQ, " + queueType + " queues"
		b.queues, err = newRabbitQueues(ctx, conn, queueType)
	default:
		err = fmt.Errorf("cannot make queues on the product %q", product)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return b, nil
}

func (b *brokerPeer) broker() bool     { return true }
func (b *brokerPeer) describe() string { return b.product }
func (b *brokerPeer) close() error     { return b.conn.Close() }

// place makes a queue and, for a consumer, fills it. Replies get a queue of
// their own, which nobody reads.
func (b *brokerPeer) place(ctx context.Context, s scenario) (place, error) {
	b.made++
	name := fmt.Sprintf("amqpflow-bench-%d-%d", os.Getpid(), b.made)
	names := []string{name}
	if s.work == reply {
		names = append(names, name+"-replies")
	}
	for _, n := range names {
		if err := b.queues.create(ctx, n); err != nil {
			return place{}, fmt.Errorf("create queue %s: %w", n, err)
		}
	}
	p := place{
		url: b.url, queue: name, node: b.queues.node(name), caps: b.queues.capabilities(),
		reply: b.queues.node(names[len(names)-1]),
		remove: func(ctx context.Context) (err error) {
			for _, n := range names {
				err = errors.Join(err, b.queues.remove(ctx, n))
			}
			return err
		},
	}
	if !s.work.consumes() {
		return p, nil
	}
	if err := b.preload(ctx, p, s); err != nil {
		return place{}, errors.Join(fmt.Errorf("preload %s: %w", name, err), p.remove(ctx))
	}
	return p, nil
}

// preloadInFlight is how many sends preload leaves unconfirmed.
const preloadInFlight = 500

// preload sends what one run consumes.
func (b *brokerPeer) preload(ctx context.Context, p place, s scenario) error {
	sender, err := b.session.NewSender(ctx, p.node, &amqp.SenderOptions{TargetCapabilities: p.caps})
	if err != nil {
		return err
	}
	msg := message(s.json)
	if s.work == reply {
		msg = request(p.reply)
	}
	err = keepInFlight(s.warm+s.count, preloadInFlight,
		func() (amqp.SendReceipt, error) { return sender.SendWithReceipt(ctx, msg, nil) },
		func(r amqp.SendReceipt) error { return accepted(ctx, r) },
	)
	if err != nil {
		return err
	}
	return sender.Close(ctx)
}
