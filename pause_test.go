package amqpflow_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// granted is what the client has let the peer send.
func (p *peer) granted(l *peerLink) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(int32(l.limit - l.count))
}

func TestSubscription_pauseReleasesPrefetchedAndResumeGoesOn(t *testing.T) {
	for name, subscribe := range map[string]func(*amqpflow.Broker, func(*amqpflow.Delivery)) *amqpflow.Subscription{
		"single": func(b *amqpflow.Broker, handle func(*amqpflow.Delivery)) *amqpflow.Subscription {
			return b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error { handle(d); return nil }, &amqpflow.SubscribeOptions{Credit: 10})
		},
		"lanes": func(b *amqpflow.Broker, handle func(*amqpflow.Delivery)) *amqpflow.Subscription {
			return b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error { handle(d); return nil },
				&amqpflow.SubscribeOptions{Credit: 10, Workers: 3, PartitionBy: func(*amqpflow.Delivery) string { return "one" }})
		},
		"batch": func(b *amqpflow.Broker, handle func(*amqpflow.Delivery)) *amqpflow.Subscription {
			return amqpflow.SubscribeBatch(b, "orders", func(_ context.Context, ms []*amqpflow.Message[string]) error {
				for _, m := range ms {
					handle(m.Delivery)
				}
				return nil
			}, &amqpflow.SubscribeOptions{Credit: 10, BatchSize: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var states gathered[amqpflow.State]
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{
					State: func(_ *amqpflow.Subscription, s amqpflow.State, _ error) { states.add(s) },
				}})
				begun, finish := make(chan string, 20), make(chan struct{}, 20)
				sub := subscribe(b, func(d *amqpflow.Delivery) {
					begun <- string(d.Data())
					<-finish
				})
				p.connect(b)
				for i := range 5 {
					p.deliver("orders", data(strconv.Itoa(i)))
				}
				assert.Equal(t, "0", <-begun)
				quiet()

				require.NoError(t, sub.Pause(t.Context()))
				assert.Equal(t, amqpflow.Paused, sub.State())
				assert.Equal(t, "paused", sub.State().String())
				require.NoError(t, sub.Err())
				require.NoError(t, b.Ready())
				require.NoError(t, sub.Attached(t.Context()))
				quiet()
				released := []wire.StateKind{wire.StateReleased}
				want := map[uint32][]wire.StateKind{1: released, 2: released, 3: released, 4: released}
				assert.Equal(t, want, p.outcomes())
				l := p.link("orders", wire.RoleReceiver)
				assert.Zero(t, p.granted(l))

				finish <- struct{}{}
				<-time.After(time.Minute / 4)
				want[0] = []wire.StateKind{wire.StateAccepted}
				assert.Equal(t, want, p.outcomes(), "the handler that ran has settled")
				assert.Zero(t, p.granted(l), "and that is no reason to grant")
				assert.Empty(t, begun)
				require.NoError(t, sub.Pause(t.Context()), "twice is fine")

				require.NoError(t, sub.Resume())
				require.NoError(t, sub.Resume(), "twice is fine")
				assert.Equal(t, amqpflow.Attached, sub.State())
				quiet()
				assert.Equal(t, 10, p.granted(l))
				p.deliver("orders", data("more"))
				assert.Equal(t, "more", <-begun)
				finish <- struct{}{}
				quiet()
				shutdown(t, b)
				assert.Equal(t, []amqpflow.State{
					amqpflow.Attaching, amqpflow.Attached, amqpflow.Paused, amqpflow.Attached, amqpflow.Draining, amqpflow.Ended,
				}, states.all())
			})
		})
	}
}

func TestSubscription_pauseEndsHolds(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run("ordered "+strconv.FormatBool(ordered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				block := make(chan struct{})
				p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					if string(d.Data()) == "running" {
						<-block
					}
					return amqpflow.RetryAfter(20*time.Second, errors.New("x"))
				}, &amqpflow.SubscribeOptions{OrderedRetry: ordered})
				p.deliver("orders", data("held"))
				quiet()
				require.Equal(t, 1, sub.Stats().Retrying)
				require.NoError(t, sub.Pause(t.Context()))
				quiet()
				modified := []wire.StateKind{wire.StateModified}
				assert.Equal(t, map[uint32][]wire.StateKind{0: modified}, p.outcomes())
				require.NoError(t, sub.Resume())

				p.deliver("orders", data("running"))
				quiet()
				require.NoError(t, sub.Pause(t.Context()))
				close(block)
				quiet()
				assert.Equal(t, map[uint32][]wire.StateKind{0: modified, 1: modified}, p.outcomes(), "nothing is held while it is paused")
				require.NoError(t, sub.Resume())

				p.deliver("orders", data("held"))
				quiet()
				assert.Equal(t, 1, sub.Stats().Retrying, "and after it there is")
				shutdown(t, b)
			})
		})
	}
}

// A peer that does not give the credit back: Pause says so on time, and what
// still comes goes back.
func TestSubscription_pauseThatThePeerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, accepting, nil)
		p.on(wire.CodeFlow, func(f frame) bool { return f.perf.(*wire.Flow).Drain })
		started := time.Now()
		require.ErrorIs(t, sub.Pause(within(t, 100*time.Millisecond)), context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(started), 100*time.Millisecond)
		assert.Equal(t, amqpflow.Paused, sub.State())
		l := p.link("orders", wire.RoleReceiver)
		id := p.deliverAnyway(l, data("late"), 1)
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{id: {wire.StateReleased}}, p.outcomes())
		require.NoError(t, sub.Resume())
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, uint64(1), sub.Stats().Accepted)
		p.on(wire.CodeFlow, nil)
		shutdown(t, b)
	})
}

func TestSubscription_resumeWhilePauseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { return errors.New("x") }, nil)
		amqpflow.WithoutJitter(b)
		p.on(wire.CodeFlow, func(f frame) bool {
			if f.perf.(*wire.Flow).Drain {
				time.AfterFunc(500*time.Millisecond, func() { p.answer(f) })
				return true
			}
			return false
		})
		paused := make(chan error, 1)
		go func() { paused <- sub.Pause(t.Context()) }()
		<-time.After(100 * time.Millisecond)
		require.NoError(t, sub.Resume())
		assert.Equal(t, amqpflow.Attached, sub.State())
		require.NoError(t, <-paused)
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, 1, sub.Stats().Retrying, "what it ended flows and is held again")
		p.on(wire.CodeFlow, nil)
		shutdown(t, b)
	})
}

func TestSubscription_pauseBeforeItIsAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		sub := b.Subscribe("orders", accepting)
		require.NoError(t, sub.Pause(t.Context()))
		assert.Equal(t, amqpflow.Registered, sub.State())
		p.connect(b)
		quiet()
		assert.Equal(t, amqpflow.Paused, sub.State())
		require.NoError(t, b.Ready())
		assert.Empty(t, p.sent(wire.CodeFlow), "nothing is granted")
		require.NoError(t, sub.Resume())
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, uint64(1), sub.Stats().Accepted)
		shutdown(t, b)
	})
}

func TestSubscription_pauseOfWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, sub := serve(t, accepting, nil)
		require.NoError(t, sub.Pause(t.Context()))
		require.NoError(t, sub.Close(t.Context()))
		require.ErrorIs(t, sub.Pause(t.Context()), amqpflow.ErrShutdown)
		require.ErrorIs(t, sub.Resume(), amqpflow.ErrShutdown)
		bad := b.Subscribe("orders", accepting, &amqpflow.SubscribeOptions{Credit: -1})
		<-bad.Done()
		requireOptionError(t, "SubscribeOptions.Credit", bad.Pause(t.Context()))
		requireOptionError(t, "SubscribeOptions.Credit", bad.Resume())
		shutdown(t, b)
	})
}

func TestSubscription_pauseFromItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sub *amqpflow.Subscription
		p, b, s := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error {
			assert.NoError(t, sub.Pause(ctx))
			time.AfterFunc(10*time.Second, func() { assert.NoError(t, sub.Resume()) })
			return amqpflow.Release()
		}, nil)
		sub = s
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateReleased}}, p.outcomes())
		l := p.link("orders", wire.RoleReceiver)
		assert.Zero(t, p.granted(l))
		<-time.After(10 * time.Second)
		quiet()
		assert.Positive(t, p.granted(l))
		shutdown(t, b)
	})
}

func TestStream_pauseYieldsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, nil)
		r := read(t.Context(), s, func(d *amqpflow.Delivery) { assert.NoError(t, d.Accept(t.Context())) })
		p.deliver("orders", data("a"))
		assert.Equal(t, "a", <-r.got)
		require.NoError(t, s.Pause(t.Context()))
		l := p.link("orders", wire.RoleReceiver)
		assert.Zero(t, p.granted(l))
		require.NoError(t, s.Resume())
		p.deliver("orders", data("b"))
		assert.Equal(t, "b", <-r.got)
		require.NoError(t, s.Pause(t.Context()))
		shutdown(t, b)
		require.NoError(t, <-r.end)
	})
}

// Pauses and resumes at random, of handlers that succeed and fail: everything is
// handled, and settled once at a time.
func TestSubscription_pausesAtRandomLoseNothing(t *testing.T) {
	const total = 60
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			server := amqptest.NewServer(&amqptest.Options{MaxDeliveries: -1})
			for i := range total {
				require.NoError(t, server.Put("orders", amqp.NewMessage([]byte(strconv.Itoa(i)))))
			}
			b := amqpflow.New("amqp://localhost")
			var mu sync.Mutex
			done := map[string]int{}
			opts := &amqpflow.SubscribeOptions{Credit: 1 + random.IntN(20), RetryMax: time.Second}
			opts.Workers = 1 + random.IntN(min(4, opts.Credit))
			if opts.OrderedRetry = random.IntN(2) == 0; opts.OrderedRetry || random.IntN(2) == 0 {
				opts.PartitionBy = func(d *amqpflow.Delivery) string { return string(d.Data()[:1]) }
			}
			sub := b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
				<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
				switch rand.IntN(4) {
				case 0:
					return errors.New("x")
				case 1:
					return amqpflow.Release()
				}
				mu.Lock()
				defer mu.Unlock()
				done[string(d.Data())]++
				return nil
			}, opts)
			require.NoError(t, server.Connect(t.Context(), b))
			var wg sync.WaitGroup
			for range 2 {
				pauses := rand.New(rand.NewPCG(seed, 2))
				wg.Go(func() {
					for range 20 {
						<-time.After(time.Duration(pauses.IntN(30)) * time.Millisecond)
						assert.NoError(t, sub.Pause(t.Context()))
						<-time.After(time.Duration(pauses.IntN(10)) * time.Millisecond)
						assert.NoError(t, sub.Resume())
					}
				})
			}
			wg.Wait()
			require.NoError(t, sub.Resume())
			require.NoError(t, server.Idle(within(t, 5*time.Minute)))
			assert.Len(t, done, total, "seed %d", seed)
			for body, n := range done {
				assert.Equal(t, 1, n, "seed %d: %s", seed, body)
			}
			shutdown(t, b)
			require.NoError(t, server.Close())
		})
	}
}

// A link that is lost while the subscription is paused, or that is paused while
// it is lost, comes back without credit.
func TestSubscription_pauseAcrossALostLink(t *testing.T) {
	for _, first := range []string{"pause", "loss"} {
		t.Run(first+" first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var states gathered[amqpflow.State]
				p, b, sub := serve(t, accepting, nil, &amqpflow.Options{Observer: &amqpflow.Observer{
					State: func(_ *amqpflow.Subscription, s amqpflow.State, _ error) { states.add(s) },
				}})
				synctest.Wait()
				l := p.link("orders", wire.RoleReceiver)
				lose := func() {
					p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
					synctest.Wait()
				}
				if first == "loss" {
					lose()
				}
				require.NoError(t, sub.Pause(t.Context()))
				if first == "pause" {
					lose()
				}
				assert.Equal(t, amqpflow.Attaching, sub.State())
				flows := len(p.sent(wire.CodeFlow))
				require.NoError(t, sub.Attached(within(t, 10*time.Second)))
				quiet()
				assert.Equal(t, amqpflow.Paused, sub.State())
				require.NoError(t, b.Ready())
				assert.NotSame(t, l, p.link("orders", wire.RoleReceiver))
				assert.Len(t, p.sent(wire.CodeFlow), flows)
				assert.Equal(t, amqpflow.Paused, states.all()[len(states.all())-1])
				require.NoError(t, sub.Resume())
				p.deliver("orders", data("x"))
				quiet()
				assert.Equal(t, uint64(1), sub.Stats().Accepted)
				shutdown(t, b)
			})
		})
	}
}

// What the peer has forgotten cannot go back: it waits.
func TestSubscription_pauseKeepsWhatCannotBeReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled diary
		block := make(chan struct{})
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			handled.note(d)
			<-block
			return nil
		}, &amqpflow.SubscribeOptions{AtMostOnce: true})
		for _, body := range []string{"a", "b", "c"} {
			p.deliver("orders", data(body))
		}
		quiet()
		require.NoError(t, sub.Pause(t.Context()))
		close(block)
		quiet()
		assert.Equal(t, []string{"a/1"}, handled.all())
		assert.Equal(t, 2, sub.Stats().Held)
		require.NoError(t, sub.Resume())
		quiet()
		assert.Equal(t, []string{"a/1", "b/1", "c/1"}, handled.all())
		assert.Empty(t, p.outcomes())
		shutdown(t, b)
	})
}
