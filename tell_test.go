package amqpflow_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// kinds of subscriptions, by who takes the deliveries from the link.
var kinds = map[string]func(*amqpflow.Broker) *amqpflow.Subscription{
	"one worker": func(b *amqpflow.Broker) *amqpflow.Subscription { return b.Subscribe("orders", accepting) },
	"lanes": func(b *amqpflow.Broker) *amqpflow.Subscription {
		return b.Subscribe("orders", accepting, &amqpflow.SubscribeOptions{Workers: 2, PartitionBy: byNothing})
	},
	"batches": func(b *amqpflow.Broker) *amqpflow.Subscription {
		return amqpflow.SubscribeBatch(b, "orders", func(context.Context, []*amqpflow.Message[string]) error { return nil })
	},
	"a stream": func(b *amqpflow.Broker) *amqpflow.Subscription { return b.Stream("orders").Subscription },
}

// What Observer.Error is told of a delivery may make it stop the flow of them.
func TestObserver_errorMayStopTheSubscriptionOfWhatCannotBeRead(t *testing.T) {
	for stop, call := range map[string]func(*amqpflow.Subscription) error{
		"Pause": func(s *amqpflow.Subscription) error { return s.Pause(context.Background()) },
		"Close": func(s *amqpflow.Subscription) error { return s.Close(context.Background()) },
	} {
		for kind, subscribe := range kinds {
			t.Run(stop+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var sub *amqpflow.Subscription
					stopped := make(chan error, 1)
					p := newPeer(t)
					b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1, Observer: &amqpflow.Observer{Error: func(err error) {
						if _, ok := errors.AsType[*amqpflow.UnreadableError](err); ok {
							stopped <- call(sub)
						}
					}}})
					sub = subscribe(b)
					p.connect(b)
					started := time.Now()
					p.deliver("orders", []byte("noise"))
					require.NoError(t, <-stopped)
					assert.Zero(t, time.Since(started))
					shutdown(t, b)
					assert.Equal(t, uint64(1), sub.Stats().Rejected)
				})
			})
		}
	}
}

func TestSubscription_pauseWhilePartitionByHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		p, b, sub := serve(t, accepting, &amqpflow.SubscribeOptions{Workers: 2, PartitionBy: func(*amqpflow.Delivery) string { <-hang; return "" }})
		p.deliver("orders", data("x"))
		quiet()
		started := time.Now()
		require.NoError(t, sub.Pause(context.Background()))
		assertWithin(t, started, time.Second)
		close(hang)
		quiet()
		assert.Equal(t, uint64(1), sub.Stats().Released)
		shutdown(t, b)
	})
}

// An observer may call Shutdown, with a context that never ends, whatever it is
// told by the library's own goroutines, and by a stop.
func TestObserver_mayShutDown(t *testing.T) {
	closeLink := func(p *peer, _ *amqpflow.Broker) {
		p.send(p.link("orders", wire.RoleReceiver).channel, &wire.Detach{Handle: p.link("orders", wire.RoleReceiver).attach.Handle, Closed: true})
	}
	tooMany := func(p *peer, _ *amqpflow.Broker) {
		p.deliverAnyway(p.link("orders", wire.RoleReceiver), data("x"), 50)
	}
	onState := func(wanted amqpflow.State, withError bool) func(func()) *amqpflow.Observer {
		return func(stop func()) *amqpflow.Observer {
			return &amqpflow.Observer{State: func(_ *amqpflow.Subscription, s amqpflow.State, err error) {
				if s == wanted && (err != nil) == withError {
					stop()
				}
			}}
		}
	}
	onError := func(stop func()) *amqpflow.Observer { return &amqpflow.Observer{Error: func(error) { stop() }} }
	ownStop := func(_ *peer, b *amqpflow.Broker) { _ = b.Shutdown(context.Background()) }
	for name, tc := range map[string]struct {
		observe func(stop func()) *amqpflow.Observer
		happens func(*peer, *amqpflow.Broker)
	}{
		"the end of a subscription":         {onState(amqpflow.Ended, true), tooMany},
		"the error of its end":              {onError, tooMany},
		"the loss of a link":                {onState(amqpflow.Attaching, true), closeLink},
		"the link that replaces it":         {onState(amqpflow.Attached, false), closeLink},
		"what cannot be read":               {onError, func(p *peer, _ *amqpflow.Broker) { p.deliver("orders", []byte("noise")) }},
		"a settlement that is lost":         {onError, func(p *peer, b *amqpflow.Broker) { p.deliver("orders", data("slow")); quiet(); closeLink(p, b) }},
		"draining, in a Shutdown":           {onState(amqpflow.Draining, false), ownStop},
		"the end of a subscription in that": {onState(amqpflow.Ended, false), ownStop},
		"the end of the connection in that": {func(stop func()) *amqpflow.Observer {
			return &amqpflow.Observer{Connection: func(up bool, _ error) {
				if !up {
					stop()
				}
			}}
		}, ownStop},
		"the outcome of a Send": {func(stop func()) *amqpflow.Observer {
			return &amqpflow.Observer{Published: func(amqpflow.Address, amqpflow.Outcome, time.Duration, error) { stop() }}
		}, func(_ *peer, b *amqpflow.Broker) { _, _ = b.Publisher().Send(context.Background(), "out", "x") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *amqpflow.Broker
				armed, took := false, make(chan time.Duration, 10)
				observer := tc.observe(func() {
					if armed {
						started := time.Now()
						_ = b.Shutdown(context.Background())
						took <- time.Since(started)
					}
				})
				p := newPeer(t)
				b = amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1, Observer: observer})
				b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
					if string(d.Data()) == "slow" {
						<-time.After(3 * time.Second)
					}
					return nil
				}, &amqpflow.SubscribeOptions{Credit: 1})
				p.connect(b)
				quiet()
				armed = true
				tc.happens(p, b)
				assert.LessOrEqual(t, <-took, time.Second)
				<-b.Done()
			})
		})
	}
}

// An observer that ends its goroutine, as a test's require does, harms nothing.
func TestObserver_goexitDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { return errors.New("x") },
			&amqpflow.SubscribeOptions{RetryMin: -1}, &amqpflow.Options{IdleTimeout: -1, Observer: &amqpflow.Observer{
				State:   func(*amqpflow.Subscription, amqpflow.State, error) { runtime.Goexit() },
				Settled: func(*amqpflow.Delivery, amqpflow.Outcome, time.Duration, error) { runtime.Goexit() },
				Error:   func(error) { runtime.Goexit() },
			}})
		p.deliver("orders", []byte("noise"))
		assert.Equal(t, wire.StateRejected, p.awaitDisposition().State.Kind)
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
		quiet()
		assert.Zero(t, sub.Stats().Running)
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		quiet()
		require.NoError(t, sub.Attached(t.Context()))
		started := time.Now()
		shutdown(t, b)
		assert.Zero(t, time.Since(started))
	})
}
