package main

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var missingQueue = scenario{
	name: "missing-queue", about: "one queue that is not there, beside three busy subscriptions and a publisher",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		l := load{Queues: 3, Rate: 1000, Expect: func(_ *verdict, t *trial) { t.oneConnection(); t.linksBeyond(0) }}
		return []*result{b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
			return b.trial(ctx, "missing-queue", seed, p, l, nil, func(ctx context.Context, t *trial) error {
				const missing = amqpflow.Address("missing")
				if err := p.server.Fault(amqptest.RefuseAttach(missing, amqp.ErrCondNotFound, "no such queue").Always()); err != nil {
					return err
				}
				return t.beside(ctx, missing, pick(b, 5*time.Second, 30*time.Second))
			})
		})}
	},
}

// beside subscribes to a queue that is missing, and publishes to it.
func (t *trial) beside(ctx context.Context, missing amqpflow.Address, lasting time.Duration) error {
	sub := t.broker.Subscribe(missing, func(context.Context, *amqpflow.Delivery) error { return nil })
	end := time.Now().Add(lasting)
	for time.Now().Before(end) && pause(ctx, 100*time.Millisecond) {
		t.fault()
		bound, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := t.broker.Publisher().Publish(bound, missing, "x")
		cancel()
		if refused, ok := errors.AsType[*amqp.Error](err); !ok || refused.Condition != amqp.ErrCondNotFound {
			t.breach("publish to what is missing: %v", err)
		}
	}
	if err := sub.Err(); err == nil || sub.State() == amqpflow.Attached {
		t.breach("a subscription to what is missing is %v: %v", sub.State(), err)
	}
	if err := t.broker.Ready(); err == nil {
		t.breach("ready, although a queue is missing")
	}
	return nil
}
