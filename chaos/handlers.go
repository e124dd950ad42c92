package main

import (
	"context"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var handlers = scenario{
	name: "handlers", about: "handlers panic, hang, ignore their context, and take ten times the idle timeout",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		messages := pick(b, 20_000, 200_000)
		opts := amqptest.Options{IdleTimeout: idleTimeout, MaxDeliveries: -1}
		misbehaving := b.inProcess(opts, func(p *inProcess) *result {
			var t *trial
			l := load{
				Messages:  messages,
				Options:   amqpflow.Options{IdleTimeout: idleTimeout},
				Subscribe: amqpflow.SubscribeOptions{Workers: 16, HandlerTimeout: time.Second},
				Handle: func(ctx context.Context, _ *amqpflow.Delivery, c call) error {
					return misbehave(ctx, t, c, messages)
				},
				Expect: func(_ *verdict, t *trial) { t.oneConnection() },
			}
			return b.trial(ctx, "handlers", seed, p, l, func(made *trial) { t = made }, nil)
		})
		hanging := b.inProcess(opts, func(p *inProcess) *result { return b.hangForEver(ctx, seed+1, p) })
		return []*result{sum(misbehaving, hanging)}
	},
}

const idleTimeout = 500 * time.Millisecond

// misbehave goes wrong on the first attempt of some messages.
func misbehave(ctx context.Context, t *trial, c call, messages int) error {
	n := c.seq*t.load.publishers() + c.publisher
	if c.attempt > 1 {
		return nil
	}
	switch {
	case n%100 == 0:
		t.fault()
		panic(errOnPurpose)
	case n%(messages/20) == 1: // hangs until its context ends
		t.fault()
		<-ctx.Done()
		return ctx.Err()
	case n%(messages/20) == 2: // takes no notice of it
		t.fault()
		pause(context.WithoutCancel(ctx), 2*time.Second)
	case n%(messages/4) == 3:
		t.fault()
		pause(context.WithoutCancel(ctx), 10*idleTimeout)
	}
	return nil
}

// oneConnection expects that the first connection has lasted.
func (t *trial) oneConnection() {
	if n := t.ups.Load(); n != 1 {
		t.breach("the connection came up %d times, where once was enough", n)
	}
}

// hangForEver has one handler that does not return before Shutdown has.
func (b *battery) hangForEver(ctx context.Context, seed uint64, p peer) *result {
	free := make(chan struct{})
	var t *trial
	l := load{
		Messages: 2000, StopWithin: time.Second,
		Handle: func(_ context.Context, _ *amqpflow.Delivery, c call) error {
			if c.publisher == 0 && c.seq == 100 && c.attempt == 1 {
				t.fault()
				<-free
			}
			return nil
		},
		Release: func() { close(free) },
		Unseen:  func(*trial) int64 { return 1 },
	}
	return b.trial(ctx, "handlers", seed, p, l, func(made *trial) { t = made }, nil)
}
