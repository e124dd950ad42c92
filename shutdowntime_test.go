package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestBroker_shutdownLeavesAHangingHandlerBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Logger: book.logger()})
		begun, goOn := make(chan context.Context, 1), make(chan struct{})
		sub := b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
			begun <- ctx
			<-goOn
			return nil
		})
		p.connect(b)
		p.deliver("orders", data("x"))
		handler := <-begun
		ended := make(chan error, 1)
		started := time.Now()
		go func() { ended <- b.Shutdown(within(t, 2*time.Second)) }()
		<-handler.Done()
		assert.Equal(t, 2*time.Second, time.Since(started), "not before the bound")
		require.ErrorIs(t, context.Cause(handler), amqpflow.ErrShutdown)
		err := <-ended
		assertWithin(t, started, 2*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `"orders"`)
		book.assertLine(t, "level=WARN", "handler did not return", "address=orders")
		trace := p.trace()
		assert.Contains(t, trace, "detach receiver orders", "each step runs though one before failed")
		assert.Contains(t, trace, "end 1")
		assert.Contains(t, trace, "close")
		assert.Empty(t, p.outcomes(), "the delivery goes back unsettled")
		assert.Equal(t, amqpflow.Ended, sub.State())

		require.Equal(t, err, b.Shutdown(t.Context()), "a second one returns the same")
		close(goOn)
		synctest.Wait()
		book.assertLine(t, "level=ERROR", "settlement lost", "address=orders", "outcome=accepted")
	})
}

func TestSubscription_closeSaysHowManyHandlersDidNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			if string(d.Data()) == "hangs" {
				<-goOn
			}
			return nil
		}, &amqpflow.SubscribeOptions{Workers: 4})
		for _, body := range []string{"hangs", "returns", "hangs", "returns"} {
			p.deliver("orders", data(body))
		}
		quiet()
		err := sub.Close(within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `amqpflow: stop "orders": 2 of 4 handlers did not return: `)
		close(goOn)
		shutdown(t, b)
	})
}

// assertWithin asserts the bound of Shutdown: its context and 100 ms.
func assertWithin(t *testing.T, started time.Time, bound time.Duration) {
	t.Helper()
	took := time.Since(started)
	assert.GreaterOrEqual(t, took, bound-time.Second)
	assert.LessOrEqual(t, took, bound+100*time.Millisecond)
}

// The peer falls silent at one step: Shutdown returns within its context, each
// later step still runs, and the error names the step.
func TestBroker_shutdownEndsInTimeWhereverThePeerFallsSilent(t *testing.T) {
	for _, tc := range []struct {
		name string
		mute []uint64
		text string // "": it had nothing to say that anybody needs
	}{
		{"at the drain", []uint64{wire.CodeFlow}, "drain"},
		{"at detach", []uint64{wire.CodeDetach}, "detach"},
		{"at end", []uint64{wire.CodeEnd}, "end session"},
		{"at close", []uint64{wire.CodeClose}, ""},
		{"at all of them", []uint64{wire.CodeFlow, wire.CodeDetach, wire.CodeEnd, wire.CodeClose}, "drain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b, subs := busy(t, p)
				p.mute(tc.mute...)
				started := time.Now()
				err := b.Shutdown(within(t, 2*time.Second))
				assert.LessOrEqual(t, time.Since(started), 2100*time.Millisecond)
				if tc.text == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tc.text)
				}
				assert.Equal(t, err, b.Shutdown(t.Context()), "twice is the same")
				synctest.Wait()
				assertGone(t, p)
				trace := p.trace()
				for _, text := range []string{"detach receiver one", "end 1", "end 2", "detach sender out", "end 0", "close"} {
					assert.Contains(t, trace, text, "each step runs though the one before failed")
				}
				for _, s := range subs {
					<-s.Done()
				}
			})
		})
	}
}

// A peer that never answers the drain costs at most half of the context, and
// at most a second.
func TestBroker_shutdownBoundsTheDrain(t *testing.T) {
	for bound, want := range map[time.Duration]time.Duration{10 * time.Second: time.Second, time.Second: 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t)
			b, _ := busy(t, p)
			p.mute(wire.CodeFlow)
			started := time.Now()
			require.Error(t, b.Shutdown(within(t, bound)))
			assert.Equal(t, want, time.Since(started))
		})
	}
}

// A mute peer and a context that ends by cancellation.
func TestBroker_shutdownEndsWithACancelledContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, _ := busy(t, p)
		p.mute(wire.CodeFlow, wire.CodeDetach, wire.CodeEnd, wire.CodeClose)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		started := time.Now()
		err := b.Shutdown(ctx)
		require.Error(t, err)
		assertWithin(t, started, 300*time.Millisecond)
		synctest.Wait()
		assertGone(t, p)
	})
	synctest.Test(t, func(t *testing.T) { // one that has ended before
		p := newPeer(t)
		b, _ := busy(t, p)
		p.mute(wire.CodeFlow, wire.CodeDetach, wire.CodeEnd, wire.CodeClose)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		started := time.Now()
		require.Error(t, b.Shutdown(ctx))
		assertWithin(t, started, 0)
		synctest.Wait()
		assertGone(t, p)
	})
}

// A peer that stops reading, with the client's buffers full.
func TestBroker_shutdownEndsInTimeThoughThePeerStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, _ := busy(t, p)
		stuck := make(chan struct{})
		defer close(stuck)
		p.on(wire.CodeFlow, func(frame) bool { <-stuck; return true })
		started := time.Now()
		require.Error(t, b.Shutdown(within(t, 2*time.Second)))
		assertWithin(t, started, 2*time.Second)
	})
}

func TestBroker_shutdownReturnsTheInnermostError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, _ := busy(t, p)
		p.on(wire.CodeDetach, func(f frame) bool {
			p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Detach).Handle, Closed: true, Error: &wire.Error{Condition: "acme:inner"}})
			return true
		})
		p.on(wire.CodeClose, func(frame) bool {
			p.send(0, &wire.Close{Error: &wire.Error{Condition: "acme:outer"}})
			p.closeAfterWriting()
			return true
		})
		err := b.Shutdown(within(t, 5*time.Second))
		if err != nil { // an answer with an error is an answer
			assert.NotContains(t, err.Error(), "acme:outer")
		}
		assert.Contains(t, p.trace(), "close")
	})
}

func TestBroker_shutdownTwiceAtOnceWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, _ := busy(t, p)
		p.mute(wire.CodeEnd)
		started := time.Now()
		errs := make(chan error, 5)
		for range 5 {
			go func() { errs <- b.Shutdown(within(t, 3*time.Second)) }()
		}
		first := <-errs
		require.Error(t, first)
		for range 4 {
			require.Equal(t, first.Error(), (<-errs).Error())
		}
		assertWithin(t, started, 3*time.Second)
		quick := within(t, time.Millisecond)
		assert.Equal(t, first, b.Shutdown(quick))
		assert.Len(t, p.sent(wire.CodeClose), 1)
	})
}
