package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// serve connects a broker with one subscription to "orders" to a new peer.
func serve(t *testing.T, fn func(context.Context, *amqpflow.Delivery) error, so *amqpflow.SubscribeOptions, bo ...*amqpflow.Options) (*peer, *amqpflow.Broker, *amqpflow.Subscription) {
	t.Helper()
	p := newPeer(t)
	b := amqpflow.New("amqp://localhost", bo...)
	sub := b.Subscribe("orders", fn, so)
	p.connect(b)
	return p, b, sub
}

func TestSubscription_everyResultIsItsDisposition(t *testing.T) {
	remote := &amqp.Error{Condition: "acme:bad", Description: "remote"}
	for _, tc := range []struct {
		name   string
		result error
		want   wire.State
	}{
		{"nil", nil, wire.State{Kind: wire.StateAccepted}},
		{"an error", errors.New("x"), wire.State{Kind: wire.StateModified, DeliveryFailed: true}},
		{"Retry", amqpflow.Retry(nil), wire.State{Kind: wire.StateModified, DeliveryFailed: true}},
		{"Release", amqpflow.Release(), wire.State{Kind: wire.StateReleased}},
		{"Reject", amqpflow.Reject(errors.New("bad order")), wire.State{
			Kind: wire.StateRejected, Error: &wire.Error{Condition: "amqp:internal-error", Description: "bad order"},
		}},
		{"Reject of the peer's error", fmt.Errorf("a: %w", amqpflow.Reject(remote)), wire.State{
			Kind: wire.StateRejected, Error: &wire.Error{Condition: "acme:bad", Description: remote.Error()},
		}},
		{"by hand", &amqpflow.OutcomeError{Outcome: amqpflow.Modified, UndeliverableHere: true, Annotations: amqp.Annotations{"x-a": "b"}}, wire.State{
			Kind: wire.StateModified, DeliveryFailed: true, UndeliverableHere: true, Annotations: wire.Map{{Key: wire.Symbol("x-a"), Value: "b"}},
		}},
		{"what cannot be encoded", &amqpflow.OutcomeError{Outcome: amqpflow.Rejected, Info: map[string]any{"a": struct{}{}}}, wire.State{
			Kind: wire.StateModified, DeliveryFailed: true,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { return tc.result }, nil)
				id := p.deliver("orders", data("x"))
				d := p.awaitDisposition()
				assert.Equal(t, wire.RoleReceiver, d.Role)
				assert.True(t, d.Settled)
				assert.Equal(t, id, d.First)
				assert.Equal(t, id, d.Last)
				assert.Equal(t, tc.want, d.State)
				stats := sub.Stats()
				assert.Equal(t, uint64(1), stats.Received)
				assert.Equal(t, uint64(1), stats.Accepted+stats.Rejected+stats.Released+stats.Modified)
				shutdown(t, b)
				assert.Len(t, p.sent(wire.CodeDisposition), 1)
			})
		})
	}
}

func TestSubscription_handsDeliveriesOutInOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		running := 0
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			running++
			assert.Equal(t, 1, running)
			bodies = append(bodies, string(d.Data()))
			if len(bodies)%7 == 0 {
				runtime.Gosched()
			}
			running--
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 8})
		var want []string
		for i := range 500 {
			body := strconv.Itoa(i)
			want = append(want, body)
			p.deliver("orders", data(body))
		}
		quiet()
		assert.Equal(t, want, bodies)
		shutdown(t, b)
	})
}

func TestSubscription_subscriptionsDoNotWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		stuck, handled := make(chan struct{}), make(chan struct{})
		b.Subscribe("slow", func(context.Context, *amqpflow.Delivery) error { <-stuck; return nil })
		b.Subscribe("fast", func(context.Context, *amqpflow.Delivery) error { handled <- struct{}{}; return nil })
		p.connect(b)
		assert.NotEqual(t, p.link("slow", wire.RoleReceiver).channel, p.link("fast", wire.RoleReceiver).channel, "a session each")
		for range 300 {
			p.deliver("fast", data("x"))
			if id := p.link("slow", wire.RoleReceiver).count; id < 200 {
				p.deliver("slow", data("x"))
			}
			<-handled
		}
		close(stuck)
		shutdown(t, b)
	})
}

// The credit that the peer has, and what it has sent and not got back, stay
// within the window; half of it free is given again.
func TestSubscription_grantsItsWindowAndTopsItUp(t *testing.T) {
	for _, tc := range []struct {
		option *amqpflow.SubscribeOptions
		window uint32
	}{{nil, 256}, {&amqpflow.SubscribeOptions{Credit: 1}, 1}, {&amqpflow.SubscribeOptions{Credit: 10}, 10}} {
		synctest.Test(t, func(t *testing.T) {
			p, b, _ := serve(t, accepting, tc.option)
			synctest.Wait()
			flow := p.awaitCode(wire.CodeFlow).perf.(*wire.Flow)
			assert.Equal(t, tc.window, flow.LinkCredit.Value)
			for range 3 * tc.window {
				p.deliver("orders", data("x"))
			}
			synctest.Wait()
			for _, f := range p.sent(wire.CodeFlow) {
				assert.LessOrEqual(t, f.perf.(*wire.Flow).LinkCredit.Value, tc.window)
			}
			assert.LessOrEqual(t, len(p.sent(wire.CodeFlow)), int(7*tc.window), "not one for each delivery where the window is larger")
			if tc.window > 1 {
				assert.LessOrEqual(t, len(p.sent(wire.CodeFlow)), 8, "half a window at a time")
			}
			shutdown(t, b)
		})
	}
}

// Half a window that is free is given again though the handler has not come
// to the end of what it holds.
func TestSubscription_topsUpBesideDeliveriesThatAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan struct{})
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { <-next; return nil }, &amqpflow.SubscribeOptions{Credit: 10})
		for range 10 {
			p.deliver("orders", data("x"))
		}
		for range 4 {
			next <- struct{}{}
		}
		quiet()
		assert.Zero(t, sub.Stats().Credit, "less than half of it is free")
		next <- struct{}{}
		quiet()
		assert.Equal(t, 5, sub.Stats().Credit)
		assert.Equal(t, 4, sub.Stats().Held)
		close(next)
		shutdown(t, b)
	})
}

// A handler that settles and goes on, with the inbox full behind it: the
// disposition leaves, and so does the credit that it frees.
func TestSubscription_settlesWhileTheInboxIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settled, goOn := make(chan error), make(chan struct{})
		first := true
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			if first {
				first = false
				settled <- d.Accept(ctx)
				<-goOn
			}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 4})
		for range 4 {
			p.deliver("orders", data("x"))
		}
		require.NoError(t, <-settled)
		d := p.awaitDisposition()
		assert.Equal(t, uint32(0), d.First)
		synctest.Wait()
		stats := sub.Stats()
		assert.Equal(t, 3, stats.Held)
		assert.Equal(t, 1, stats.Running)
		assert.Equal(t, uint64(1), stats.Accepted)
		close(goOn)
		shutdown(t, b)
		for id, kinds := range p.outcomes() {
			assert.Len(t, kinds, 1, "delivery %d", id)
		}
	})
}

// Whatever mix of Accept, Settle, return and panic, from whatever goroutines:
// one disposition for each delivery, and one nil for each settlement.
func TestDelivery_exactlyOneDispositionFrom64Goroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deliveries, goroutines = 200, 64
		n := 0
		var wg sync.WaitGroup
		var mu sync.Mutex
		wins := map[string]int{}
		settle := func(ctx context.Context, d *amqpflow.Delivery, i int) {
			var err error
			switch i % 4 {
			case 0:
				err = d.Accept(ctx)
			case 1:
				err = d.Settle(ctx, amqpflow.Release())
			case 2:
				err = d.Settle(ctx, errors.New("x"))
			case 3:
				err = d.Settle(ctx, amqpflow.Reject(errors.New("x")))
			}
			if err == nil {
				mu.Lock()
				wins[string(d.Data())]++
				mu.Unlock()
				return
			}
			if !errors.Is(err, amqpflow.ErrSettled) {
				t.Errorf("settle: %v", err)
			}
		}
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			n++
			for i := range goroutines {
				wg.Go(func() { settle(ctx, d, i) })
			}
			switch n % 5 {
			case 0:
				return errors.New("x")
			case 1:
				panic("x")
			case 2:
				runtime.Goexit()
			case 3:
				wg.Wait()
			}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 16})
		for i := range deliveries {
			p.deliver("orders", data(strconv.Itoa(i)))
		}
		synctest.Wait()
		wg.Wait()
		shutdown(t, b)
		outcomes := p.outcomes()
		assert.Len(t, outcomes, deliveries)
		for id, kinds := range outcomes {
			assert.Len(t, kinds, 1, "delivery %d", id)
		}
		for body, n := range wins {
			assert.Equal(t, 1, n, "delivery %s: settled with nil more than once", body)
		}
		stats := sub.Stats()
		assert.Equal(t, uint64(deliveries), stats.Accepted+stats.Rejected+stats.Released+stats.Modified)
	})
}

func TestSubscription_handlerTimeoutOnlyCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			started := time.Now()
			<-ctx.Done()
			took <- time.Since(started)
			assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			time.AfterFunc(time.Hour, func() { close(took) })
			<-took // an hour more: nobody ends a handler
			return nil
		}, &amqpflow.SubscribeOptions{HandlerTimeout: 3 * time.Second}, &amqpflow.Options{IdleTimeout: -1})
		p.deliver("orders", data("x"))
		assert.Equal(t, 3*time.Second, <-took)
		synctest.Wait()
		assert.Empty(t, p.outcomes())
		<-time.After(2 * time.Hour)
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind, "what it returns is the outcome")
		shutdown(t, b)
	})
}

func TestSubscription_handlersContextLivesOnAfterItReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []context.Context
		p, b, _ := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error { kept = append(kept, ctx); return nil }, nil)
		p.deliver("orders", data("x"))
		p.deliver("orders", data("x"))
		synctest.Wait()
		require.Len(t, kept, 2)
		require.NoError(t, kept[0].Err())
		shutdown(t, b)
		require.Error(t, kept[0].Err(), "it ends with the link")
		assert.ErrorIs(t, context.Cause(kept[1]), amqpflow.ErrLinkLost)
	})
}
