package amqpflow_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// A handler closes its subscription while another one of it shuts the broker
// down: each would wait for the other.
func TestBroker_shutdownFromAHandlerBesideACloseFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *amqpflow.Broker
		var sub *amqpflow.Subscription
		took := make(chan time.Duration, 2)
		p := newPeer(t)
		b = amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		sub = b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
			started := time.Now()
			if string(d.Data()) == "close" {
				_ = sub.Close(ctx)
			} else {
				<-time.After(time.Second)
				_ = b.Shutdown(ctx)
			}
			took <- time.Since(started)
			return nil
		}, &amqpflow.SubscribeOptions{Workers: 2})
		p.connect(b)
		p.deliver("orders", data("shutdown"))
		p.deliver("orders", data("close"))
		assert.Equal(t, time.Second, <-took)
		assert.Equal(t, time.Second, <-took)
		<-b.Done()
	})
}

// Handlers close each other's subscriptions in a ring. One of them is not waited
// for; the others settle what they handled.
func TestSubscription_closeEachOtherFromTheirHandlers(t *testing.T) {
	for size := 2; size <= 4; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				subs := make([]*amqpflow.Subscription, size)
				took := make(chan time.Duration, size)
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
				for i := range subs {
					subs[i] = b.Subscribe(amqpflow.Address(fmt.Sprint(i)), func(ctx context.Context, _ *amqpflow.Delivery) error {
						<-time.After(time.Second)
						started := time.Now()
						_ = subs[(i+1)%size].Close(ctx)
						took <- time.Since(started)
						return nil
					})
				}
				p.connect(b)
				for i := range subs {
					p.deliver(fmt.Sprint(i), data("x"))
				}
				for range subs {
					assert.Zero(t, <-took)
				}
				quiet()
				var accepted uint64
				for _, s := range subs {
					accepted += s.Stats().Accepted
				}
				assert.Equal(t, uint64(size-1), accepted)
				shutdown(t, b)
			})
		})
	}
}

// A handler that closes another subscription goes on afterwards: a Shutdown
// beside it waits for it, as the Close does not wait for that.
func TestBroker_shutdownWaitsForAHandlerThatClosesAnotherSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		slow := b.Subscribe("slow", func(context.Context, *amqpflow.Delivery) error {
			<-time.After(3 * time.Second)
			return nil
		})
		closer := b.Subscribe("closer", func(ctx context.Context, _ *amqpflow.Delivery) error {
			assert.NoError(t, slow.Close(ctx))
			<-time.After(time.Second)
			return ctx.Err()
		})
		p.connect(b)
		p.deliver("slow", data("x"))
		started := time.Now()
		quiet()
		p.deliver("closer", data("x"))
		quiet()
		require.NoError(t, b.Shutdown(within(t, 10*time.Second)))
		assert.Equal(t, 4*time.Second, time.Since(started))
		assert.Equal(t, uint64(1), slow.Stats().Accepted)
		assert.Equal(t, uint64(1), closer.Stats().Accepted)
	})
}
