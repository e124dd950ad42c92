package amqpflow_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestBroker_shutdownFromAHandler(t *testing.T) {
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"with its context": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"with one made from it": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		},
		"with one that has a value": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, "k", "v"), func() {} //nolint:staticcheck // any key does
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{ShutdownTimeout: 5 * time.Second})
				result, both := make(chan error, 1), make(chan struct{})
				other := b.Subscribe("other", accepting)
				b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
					<-both
					ctx, cancel := derive(ctx)
					defer cancel()
					result <- b.Shutdown(ctx)
					return nil
				})
				p.connect(b)
				started := time.Now()
				p.deliver("orders", data("a"))
				p.deliver("orders", data("b"))
				synctest.Wait()
				close(both)
				require.NoError(t, <-result)
				assert.Zero(t, time.Since(started))
				synctest.Wait()
				outcomes := p.outcomes()
				assert.Empty(t, outcomes[0], "the handler's own delivery stays unsettled")
				assert.Equal(t, []wire.StateKind{wire.StateReleased}, outcomes[1])
				assert.Contains(t, p.trace(), "close")
				<-other.Done()
				<-b.Done()
			})
		})
	}
}

func TestBroker_shutdownFromAHandlerIsBoundedByShutdownTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{ShutdownTimeout: 3 * time.Second})
		result := make(chan error, 1)
		b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
			result <- b.Shutdown(ctx)
			return nil
		})
		p.connect(b)
		p.mute(wire.CodeEnd)
		p.deliver("orders", data("a"))
		started := time.Now()
		require.Error(t, <-result)
		assertWithin(t, started, 3*time.Second)
	})
}

func TestBroker_shutdownFromTwoHandlersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{ShutdownTimeout: 2 * time.Second})
		var both atomic.Int32
		ready, results := make(chan struct{}), make(chan error, 2)
		stop := func(ctx context.Context, d *amqpflow.Delivery) error {
			if both.Add(1) == 2 {
				close(ready)
			}
			<-ready
			results <- b.Shutdown(ctx)
			return nil
		}
		b.Subscribe("one", stop)
		b.Subscribe("two", stop)
		p.connect(b)
		p.deliver("one", data("a"))
		p.deliver("two", data("a"))
		started := time.Now()
		<-results
		<-results
		assert.LessOrEqual(t, time.Since(started), 2100*time.Millisecond)
		<-b.Done()
	})
}

func TestSubscription_closeEndsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, subs := busy(t, p)
		require.NoError(t, subs[0].Close(t.Context()))
		require.NoError(t, subs[0].Close(t.Context()), "twice is the same")
		assert.Equal(t, amqpflow.Ended, subs[0].State())
		require.NoError(t, subs[0].Err())
		<-subs[0].Done()
		trace := p.trace()
		assert.Contains(t, trace, "detach receiver one")
		assert.Contains(t, trace, fmt.Sprintf("end %d", p.link("one", wire.RoleReceiver).channel))
		assert.NotContains(t, trace, "detach receiver two")
		assert.NotContains(t, trace, "close")
		require.NoError(t, b.Ready(), "a subscription that was closed is not missed")
		assert.Equal(t, subs[1:], b.Subscriptions())
		shutdown(t, b)
	})
}

func TestSubscription_closeFromItsOwnHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		result := make(chan error, 1)
		var sub *amqpflow.Subscription
		sub = b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
			result <- sub.Close(ctx)
			return nil
		})
		p.connect(b)
		p.deliver("orders", data("a"))
		started := time.Now()
		require.NoError(t, <-result)
		assert.Zero(t, time.Since(started))
		synctest.Wait()
		assert.Empty(t, p.outcomes())
		assert.Contains(t, p.trace(), "detach receiver orders")
		shutdown(t, b)
	})
}

func TestSubscription_closeWhileItAttaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		attaches := make(chan frame, 1)
		p.on(wire.CodeAttach, func(f frame) bool { attaches <- f; return true })
		sub := b.Subscribe("orders", accepting)
		f := <-attaches
		require.NoError(t, sub.Close(within(t, time.Second)))
		p.answer(f)
		synctest.Wait()
		assert.Equal(t, amqpflow.Ended, sub.State())
		require.NoError(t, sub.Err())
		assert.Contains(t, p.trace(), fmt.Sprintf("end %d", f.channel), "the late link's session is ended")
		shutdown(t, b)
	})
}

// A link that is attached while Connect still waits for another has nobody who
// receives from it yet.
func TestSubscription_closeWhileConnectWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		slow := make(chan frame, 1)
		p.on(wire.CodeAttach, func(f frame) bool {
			if f.perf.(*wire.Attach).Source.Address != "slow" {
				return false
			}
			slow <- f
			return true
		})
		b := amqpflow.New("amqp://localhost")
		quick := b.Subscribe("quick", accepting)
		b.Subscribe("slow", accepting)
		connected := make(chan error, 1)
		go func() { connected <- b.ConnectInProcess(t.Context(), p.dial) }()
		f := <-slow
		quiet()
		require.Equal(t, amqpflow.Attached, quick.State())
		started := time.Now()
		_ = quick.Close(within(t, time.Second))
		assert.LessOrEqual(t, time.Since(started), 1100*time.Millisecond)
		assert.Equal(t, amqpflow.Ended, quick.State())
		p.answer(f)
		require.NoError(t, <-connected)
		assert.Equal(t, amqpflow.Ended, quick.State())
		require.NoError(t, b.Ready())
		shutdown(t, b)
	})
}
