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
		b.queues, err = newRabbitQueues(ctx, session, queueType)
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

// place makes a queue and, for a consumer, fills it.
func (b *brokerPeer) place(ctx context.Context, s scenario) (place, error) {
	b.made++
	name := fmt.Sprintf("amqpflow-bench-%d-%d", os.Getpid(), b.made)
	if err := b.queues.create(ctx, name); err != nil {
		return place{}, fmt.Errorf("create queue %s: %w", name, err)
	}
	p := place{
		url: b.url, queue: name, node: b.queues.node(name), caps: b.queues.capabilities(),
		remove: func(ctx context.Context) error { return b.queues.remove(ctx, name) },
	}
	if s.publish {
		return p, nil
	}
	if err := b.preload(ctx, p, s); err != nil {
		return place{}, errors.Join(fmt.Errorf("preload %s: %w", name, err), p.remove(ctx))
	}
	return p, nil
}

// inFlight is how many sends preload leaves unconfirmed.
const inFlight = 500

// preload sends what one run consumes.
func (b *brokerPeer) preload(ctx context.Context, p place, s scenario) error {
	sender, err := b.session.NewSender(ctx, p.node, &amqp.SenderOptions{TargetCapabilities: p.caps})
	if err != nil {
		return err
	}
	msg := message(s.json)
	receipts := make([]amqp.SendReceipt, 0, s.warm+s.count)
	confirmed := 0
	for range s.warm + s.count {
		receipt, err := sender.SendWithReceipt(ctx, msg, nil)
		if err != nil {
			return err
		}
		receipts = append(receipts, receipt)
		if len(receipts)-confirmed >= inFlight {
			if err := accepted(ctx, receipts[confirmed]); err != nil {
				return err
			}
			confirmed++
		}
	}
	for _, receipt := range receipts[confirmed:] {
		if err := accepted(ctx, receipt); err != nil {
			return err
		}
	}
	return sender.Close(ctx)
}

// accepted waits for a send to be confirmed.
func accepted(ctx context.Context, receipt amqp.SendReceipt) error {
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	if _, ok := state.(*amqp.StateAccepted); !ok {
		return fmt.Errorf("a message was not accepted: %v", state)
	}
	return nil
}
