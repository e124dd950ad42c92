package amqpflow_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestPublisher_lossWhileASendWaitsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 1
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		failed := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { _, err := pub.Send(t.Context(), "out", "y"); failed <- err })
		quiet()
		l := p.link("out", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		require.NoError(t, <-failed, "it is sent on the next link")
		wg.Wait()
		quiet()
		began := time.Now()
		shutdown(t, b)
		assert.Less(t, time.Since(began), time.Second)
	})
}

func TestSubscription_closeAfterALossLeavesTheSharedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: 2})
		var subs []*amqpflow.Subscription
		for _, a := range []amqpflow.Address{"a", "b", "c"} {
			subs = append(subs, b.Subscribe(a, accepting))
		}
		p.connect(b)
		l := p.link("a", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		synctest.Wait()
		require.NoError(t, subs[0].Close(within(t, time.Second)))
		require.NoError(t, subs[1].Close(within(t, time.Second)))
		quiet()
		require.NoError(t, subs[2].Err())
		assert.Equal(t, amqpflow.Attached, subs[2].State())
		assert.Empty(t, p.sent(wire.CodeEnd))
		shutdown(t, b)
	})
}

func muteAttach(p *peer, addr string) {
	p.on(wire.CodeAttach, func(f frame) bool {
		a := f.perf.(*wire.Attach)
		return a.Source != nil && a.Source.Address == addr
	})
}

func TestBroker_closeOfAnAttachedSubscriptionDuringConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		s := b.Subscribe("a", accepting)
		other := b.Subscribe("b", accepting)
		muteAttach(p, "b")
		done := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { done <- b.ConnectInProcess(t.Context(), p.dial) })
		synctest.Wait()
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, amqpflow.Ended, s.State())
		later := b.Subscribe("c", accepting)
		p.on(wire.CodeAttach, func(frame) bool { return false })
		l := p.link("b", wire.RoleReceiver)
		p.answerAttach(l.channel, &l.attach)
		require.NoError(t, <-done)
		require.NoError(t, other.Attached(t.Context()))
		require.NoError(t, later.Attached(within(t, time.Second)))
		require.NoError(t, b.Ready())
		wg.Wait()
		shutdown(t, b)
	})
}

func TestBroker_closeOfASubscriptionThatConnectAttaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		s := b.Subscribe("a", accepting)
		b.Subscribe("b", accepting)
		var later *amqpflow.Subscription
		muteAttach(p, "a")
		done := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { done <- b.ConnectInProcess(t.Context(), p.dial) })
		synctest.Wait()
		require.NoError(t, s.Close(t.Context()))
		later = b.Subscribe("c", accepting)
		p.on(wire.CodeAttach, func(frame) bool { return false })
		l := p.link("a", wire.RoleReceiver)
		p.answerAttach(l.channel, &l.attach)
		require.NoError(t, <-done)
		require.NoError(t, later.Attached(within(t, time.Second)))
		wg.Wait()
		shutdown(t, b)
	})
}

func TestBroker_shutdownDuringAnAttachInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Logger: book.logger()})
		p.connect(b)
		muteAttach(p, "a")
		s := b.Subscribe("a", accepting)
		quiet()
		shutdown(t, b)
		require.NoError(t, s.Err())
		assert.Empty(t, book.line("level=ERROR"))
	})
}

func TestBroker_shutdownFromTheObserverOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		var b *amqpflow.Broker
		took := make(chan time.Duration, 1)
		b = amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{Connection: func(up bool, _ error) {
			if up {
				began := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_ = b.Shutdown(ctx)
				took <- time.Since(began)
			}
		}}})
		b.Subscribe("in", accepting)
		_ = b.ConnectInProcess(t.Context(), p.dial)
		assert.Less(t, <-took, time.Second)
	})
}

func TestBroker_shutdownAtAnyMomentOfAConnectEndsIt(t *testing.T) {
	for round := range 1000 {
		b := amqpflow.New("amqp://localhost")
		done := make(chan error, 1)
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			done <- b.ConnectInProcess(ctx, func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() })
		})
		wg.Go(func() { _ = b.Shutdown(t.Context()) })
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Errorf("round %d: Connect goes on after Shutdown", round)
			cancel()
		}
		wg.Wait()
		cancel()
		if t.Failed() {
			return
		}
	}
}

func TestBroker_shutdownFromTwoHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *amqpflow.Broker
		done := make(chan error, 2)
		var both sync.WaitGroup
		both.Add(2)
		p, broker, _ := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error {
			both.Done()
			both.Wait()
			done <- b.Shutdown(ctx)
			return nil
		}, &amqpflow.SubscribeOptions{Workers: 2})
		b = broker
		began := time.Now()
		p.deliver("orders", data("x"))
		p.deliver("orders", data("x"))
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		assert.Less(t, time.Since(began), time.Second)
	})
}

// A handler, and somebody else, stop the same thing: neither waits for the other.
// stop picks what; it is called inside the bubble.
func stoppedFromInsideAndOutside(t *testing.T, stop func(*amqpflow.Broker, *amqpflow.Subscription) func(context.Context) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var end func(context.Context) error
		entered, goOn := make(chan struct{}), make(chan struct{})
		done := make(chan error, 2)
		p, b, sub := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error {
			close(entered)
			<-goOn
			done <- end(ctx)
			return nil
		}, nil)
		end = stop(b, sub)
		p.deliver("orders", data("x"))
		<-entered
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { done <- end(within(t, 10*time.Second)) })
		synctest.Wait()
		close(goOn)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		assert.Less(t, time.Since(began), time.Second)
		wg.Wait()
		shutdown(t, b)
	})
}

func TestBroker_shutdownWhileAHandlerShutsDown(t *testing.T) {
	stoppedFromInsideAndOutside(t, func(b *amqpflow.Broker, _ *amqpflow.Subscription) func(context.Context) error { return b.Shutdown })
}

func TestSubscription_closeWhileAHandlerCloses(t *testing.T) {
	stoppedFromInsideAndOutside(t, func(_ *amqpflow.Broker, s *amqpflow.Subscription) func(context.Context) error { return s.Close })
}

func TestBroker_subscriptionsOfALostSharedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: 1})
		p.connect(b)
		p.send(0, &wire.End{})
		quiet()
		var subs []*amqpflow.Subscription
		for range 10 {
			subs = append(subs, b.Subscribe("a", accepting))
		}
		for _, s := range subs {
			_ = s.Attached(t.Context())
		}
		_ = b.Shutdown(within(t, time.Second))
	})
}

func TestPublisher_beginsTheOnlySessionAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: 1})
		p.connect(b)
		pub := b.Publisher()
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		for range 3 {
			p.send(p.link("out", wire.RoleSender).channel, &wire.End{})
			quiet()
			require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		}
		shutdown(t, b)
	})
}

func TestBroker_shutdownWhilePartitionByHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		p, b, _ := serve(t, accepting, &amqpflow.SubscribeOptions{Workers: 2, PartitionBy: func(*amqpflow.Delivery) string { <-hang; return "" }})
		p.deliver("orders", data("x"))
		quiet()
		began := time.Now()
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { _ = b.Shutdown(within(t, time.Second)); close(done) })
		select {
		case <-done:
		case <-time.After(time.Minute):
		}
		assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
		close(hang)
		wg.Wait()
	})
}
