package amqpflow_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// busy is a broker on a scripted peer with two subscriptions and a sending
// link to "out".
func busy(t *testing.T, p *peer) (*amqpflow.Broker, []*amqpflow.Subscription) {
	t.Helper()
	b := amqpflow.New("amqp://localhost")
	subs := []*amqpflow.Subscription{b.Subscribe("one", accepting), b.Subscribe("two", accepting)}
	p.connect(b)
	require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
	return b, subs
}

func TestBroker_shutdownGoesFromTheInsideOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, subs := busy(t, p)
		publisherSession := fmt.Sprintf("end %d", p.link("out", wire.RoleSender).channel)
		before := len(p.trace())
		require.NoError(t, b.Shutdown(t.Context()))
		synctest.Wait()
		var after []string
		for _, text := range p.trace()[before:] {
			if text != "flow" && text != "disposition" {
				after = append(after, text)
			}
		}
		place := func(text string) int {
			i := slices.Index(after, text)
			require.GreaterOrEqual(t, i, 0, "no %q in %v", text, after)
			return i
		}
		for _, address := range []string{"one", "two"} {
			session := fmt.Sprintf("end %d", p.link(address, wire.RoleReceiver).channel)
			assert.Less(t, place("detach receiver "+address), place(session), "%v", after)
			assert.Less(t, place(session), place("detach sender out"), "%v", after)
		}
		assert.Less(t, place("detach sender out"), place(publisherSession), "%v", after)
		assert.Less(t, place(publisherSession), place("close"), "%v", after)
		assert.Len(t, after, 7, "each of them once: %v", after)
		assertGone(t, p)

		for _, s := range subs {
			assert.Equal(t, amqpflow.Ended, s.State())
			require.NoError(t, s.Err())
			<-s.Done()
		}
		<-b.Done()
		require.NoError(t, b.Err())
		require.ErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
		require.ErrorIs(t, b.Publisher().Publish(t.Context(), "out", "x"), amqpflow.ErrNotConnected)
		require.ErrorIs(t, b.Connect(t.Context()), amqpflow.ErrShutdown)
		late := b.Subscribe("late", accepting)
		assert.Error(t, late.Attached(t.Context()))
	})
}

// While an inner layer closes, the outer one still carries the peer's answers.
func TestBroker_shutdownWaitsForEachAnswerOfThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, _ := busy(t, p)
		slowly := func(f frame) bool {
			time.AfterFunc(100*time.Millisecond, func() { p.answer(f) })
			return true
		}
		for _, code := range []uint64{wire.CodeDetach, wire.CodeEnd, wire.CodeClose} {
			p.on(code, slowly)
		}
		started := time.Now()
		require.NoError(t, b.Shutdown(within(t, 10*time.Second)))
		assert.Equal(t, 500*time.Millisecond, time.Since(started), "receiving links, their sessions, sender, its session, close")
	})
}

func TestBroker_shutdownReleasesWhatNoHandlerHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		begun, goOn := make(chan struct{}), make(chan struct{})
		sub := b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
			begun <- struct{}{}
			<-goOn
			return ctx.Err()
		})
		p.connect(b)
		for range 10 {
			p.deliver("orders", data("x"))
		}
		<-begun
		synctest.Wait()
		assert.Equal(t, 9, sub.Stats().Held)
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(within(t, 10*time.Second)) }()
		synctest.Wait()
		assert.Equal(t, amqpflow.Draining, sub.State())
		assert.Empty(t, p.sent(wire.CodeDetach), "no link is detached before the handlers have ended")
		require.ErrorIs(t, b.Publisher().Publish(t.Context(), "x", "x"), amqpflow.ErrNotConnected)
		close(goOn)
		require.NoError(t, <-ended)
		outcomes := p.outcomes()
		require.Len(t, outcomes, 10)
		assert.Equal(t, []wire.StateKind{wire.StateAccepted}, outcomes[0], "its context did not end")
		for id := uint32(1); id < 10; id++ {
			assert.Equal(t, []wire.StateKind{wire.StateReleased}, outcomes[id])
		}
		assert.Equal(t, uint64(9), sub.Stats().Released)
	})
}

// A peer that answers no drain goes on sending as far as the credit reaches.
func TestBroker_shutdownReleasesWhatComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := make(chan struct{}, 10), make(chan struct{})
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}, nil)
		p.mute(wire.CodeFlow)
		p.deliver("orders", data("x"))
		<-begun
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(within(t, 10*time.Second)) }()
		<-time.After(3 * time.Second) // the drain is given up
		for range 5 {
			p.deliver("orders", data("late"))
		}
		quiet()
		close(goOn)
		require.ErrorContains(t, <-ended, "drain")
		assert.Empty(t, begun, "no handler begins")
		outcomes := p.outcomes()
		require.Len(t, outcomes, 6)
		for id := uint32(1); id < 6; id++ {
			assert.Equal(t, []wire.StateKind{wire.StateReleased}, outcomes[id])
		}
		assert.Equal(t, uint64(5), sub.Stats().Released)
	})
}

func TestBroker_shutdownTakesTheCreditBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b, _ := busy(t, p)
		require.NoError(t, b.Shutdown(t.Context()))
		assert.True(t, p.link("one", wire.RoleReceiver).drained)
		assert.True(t, p.link("two", wire.RoleReceiver).drained)
	})
}

func TestBroker_shutdownLetsAHandlerPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		begun, goOn := make(chan struct{}), make(chan struct{})
		b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
			close(begun)
			<-goOn
			return b.Publisher().Publish(ctx, "out", "result")
		})
		p.connect(b)
		p.deliver("orders", data("x"))
		<-begun
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(within(t, 10*time.Second)) }()
		synctest.Wait()
		close(goOn)
		require.NoError(t, <-ended)
		assert.Len(t, p.sent(wire.CodeTransfer), 1)
		assert.Equal(t, []wire.StateKind{wire.StateAccepted}, p.outcomes()[0])
	})
}

// A handler that does not return: Shutdown ends within its context and 100 ms,
// the handler's context ends at the bound with its cause, and the log says so.
func TestBroker_shutdownBeforeConnect(t *testing.T) {
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t)})
	sub := b.Subscribe("orders", accepting)
	require.NoError(t, b.Shutdown(context.Background()))
	require.NoError(t, b.Shutdown(context.Background()))
	<-b.Done()
	<-sub.Done()
	require.NoError(t, b.Err())
	require.NoError(t, sub.Err())
	require.ErrorIs(t, b.Connect(context.Background()), amqpflow.ErrShutdown)
	require.ErrorIs(t, b.Run(context.Background()), amqpflow.ErrShutdown)
}

func TestBroker_shutdownEndsAConnectThatIsUnderWay(t *testing.T) {
	for _, code := range []uint64{headerCode, wire.CodeOpen, wire.CodeBegin, wire.CodeAttach} {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t)
			p.mute(code)
			b := amqpflow.New("amqp://localhost")
			sub := b.Subscribe("orders", accepting)
			connected := make(chan error, 1)
			go func() { connected <- b.ConnectInProcess(context.Background(), p.dial) }()
			p.awaitCode(code)
			started := time.Now()
			require.NoError(t, b.Shutdown(within(t, time.Second)))
			require.ErrorIs(t, <-connected, amqpflow.ErrShutdown)
			assert.Zero(t, time.Since(started))
			synctest.Wait()
			assertGone(t, p)
			<-sub.Done()
			assert.NoError(t, sub.Err())
		})
	}
}

// From a handler: no deadlock, the handler is not waited for, and its delivery
// goes back unsettled.
// Its context has no deadline of its own, so ShutdownTimeout bounds it.
// Two handlers that shut down at once must not wait for each other.
