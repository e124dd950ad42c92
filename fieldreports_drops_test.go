package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// Handlers that publish to addresses nobody has used, and make a round of
// request and reply, while the connection goes in the middle: none hangs, and
// each publish has its answer.
func TestFieldReport_B13_publishingInHandlersAcrossAReconnect(t *testing.T) {
	const n = 200
	for _, workers := range []int{1, 8} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := amqptest.NewServer()
				b := amqpflow.New("amqp://localhost")
				amqpflow.SubscribeReply(b, "service", func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
					return "re: " + m.Body, nil
				}, &amqpflow.SubscribeOptions{Workers: 2})
				var mu sync.Mutex
				waiting := map[string]chan string{}
				amqpflow.Subscribe(b, "replies", func(_ context.Context, m *amqpflow.Message[string]) error {
					mu.Lock()
					defer mu.Unlock()
					if ch := waiting[m.CorrelationID()]; ch != nil {
						select {
						case ch <- m.Body:
						default: // of a request that was delivered twice
						}
					}
					return nil
				})
				done := make(map[string]int)
				amqpflow.Subscribe(b, "orders", func(ctx context.Context, m *amqpflow.Message[string]) error {
					fresh := amqpflow.Queue(fmt.Sprintf("fresh %s %d", m.Body, m.Attempt()))
					if err := b.Publisher().Publish(ctx, fresh, "x"); err != nil {
						if !errors.Is(err, amqpflow.ErrUncertain) {
							assert.ErrorIs(t, err, amqpflow.ErrNotSent)
						}
						return err
					}
					id := fmt.Sprintf("%s %d %d", m.Body, m.Attempt(), rand.Uint64())
					ch := make(chan string, 1)
					mu.Lock()
					waiting[id] = ch
					mu.Unlock()
					err := b.Publisher().Publish(ctx, "service", m.Body, &amqpflow.PublishOptions{MessageID: id, ReplyTo: "replies"})
					if err != nil {
						return err
					}
					select {
					case reply := <-ch:
						assert.Equal(t, "re: "+m.Body, reply)
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Minute):
						return errors.New("no reply")
					}
					mu.Lock()
					done[m.Body]++
					mu.Unlock()
					return nil
				}, &amqpflow.SubscribeOptions{Credit: 50, Workers: workers})
				require.NoError(t, s.Connect(t.Context(), b))
				require.NoError(t, s.Fault(amqptest.Drop().After(n).Times(3)))
				for i := range n {
					require.NoError(t, s.Put("orders", amqp.NewMessage([]byte(fmt.Sprint(i)))))
				}
				<-time.After(30 * time.Minute)
				mu.Lock()
				assert.Len(t, done, n)
				mu.Unlock()
				for _, sub := range b.Subscriptions() {
					assert.NotZero(t, sub.Stats().Reattached)
				}
				shutdown(t, b)
				require.NoError(t, s.Close())
			})
		})
	}
}

// B44 while the connection is cut again and again: confirmed means stored,
// nothing is sent twice, and nobody writes to what is the caller's.
func TestFieldReport_B44_concurrentUseWithDrops(t *testing.T) {
	each := stormSize / 100
	s := newStorm(t)
	b, server := s.b, s.server
	require.NoError(t, server.Fault(amqptest.Drop().AfterBytes(300*stormSize).Always()))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	confirmed, uncertain := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	for g := range stormers {
		wg.Go(func() {
			for i := range each {
				o, v := s.message(g, i)
				var err error
				if i%3 == 0 {
					err = b.Publisher().Publish(ctx, stormAddress(g+i), v, o)
				} else {
					var receipt *amqpflow.Receipt
					if receipt, err = b.Publisher().Send(ctx, stormAddress(g+i), v, o); err == nil {
						err = receipt.Wait(ctx)
					}
				}
				s.mu.Lock()
				switch {
				case err == nil:
					confirmed[o.MessageID.(string)] = true
				case assert.ErrorIs(t, err, amqpflow.ErrUncertain):
					uncertain[o.MessageID.(string)] = true
				}
				s.mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for i := range 20 {
			sub := b.Subscribe(stormAddress(i), s.handle, &amqpflow.SubscribeOptions{Credit: 5})
			assert.NoError(t, sub.Attached(ctx))
			assert.NoError(t, ignoreLoss(sub.Close(ctx)))
		}
	})
	wg.Wait()
	server.Heal()
	require.NoError(t, server.Idle(ctx))
	require.NoError(t, b.Shutdown(ctx))
	require.NoError(t, server.Close(), "no frame broke a rule")
	t.Logf("%d confirmed, %d uncertain, %d received", len(confirmed), len(uncertain), len(s.received))
	assert.Len(t, confirmed, stormers*each-len(uncertain))
	assert.NotEmpty(t, uncertain, "there were drops")
	for id := range confirmed {
		assert.NotZero(t, s.received[id], "%s was confirmed and is lost", id)
	}
	stored := map[string]int{} // what is stored is accepted once, however often it was delivered
	for i := range stormAddresses {
		for _, done := range server.Settlements(stormAddress(i)) {
			if done.Outcome == amqpflow.Accepted {
				stored[done.MessageID]++
			}
		}
	}
	for id, n := range stored {
		assert.True(t, confirmed[id] || uncertain[id], id)
		assert.Equal(t, 1, n, "%s was sent twice", id)
	}
	assert.Len(t, s.received, len(stored))
	s.assertUnchanged(t)
}

// ignoreLoss is the error of a stop that met no loss.
func ignoreLoss(err error) error {
	if errors.Is(err, amqpflow.ErrLinkLost) {
		return nil
	}
	return err
}

// Subscriptions come and go, ten thousand times, on a broker that loses its
// connection now and then: nothing is left of them.
func TestSubscription_tenThousandUnderLossLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := amqptest.NewServer()
		b := amqpflow.New("amqp://localhost")
		require.NoError(t, s.Connect(t.Context(), b))
		require.NoError(t, s.Fault(amqptest.Drop().AfterFrames(1000).Always()))
		var m runtime.MemStats
		heap := func() uint64 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		var goroutines int
		var before uint64
		for i := range stormSize {
			sub := b.Subscribe(amqpflow.Queue(fmt.Sprint(i%10)), accepting)
			if i%3 > 0 {
				require.NoError(t, sub.Attached(t.Context()))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			started := time.Now()
			require.NoError(t, ignoreLoss(sub.Close(ctx)))
			assert.LessOrEqual(t, time.Since(started), time.Second)
			cancel()
			if i == stormSize/10 {
				<-time.After(10 * time.Second)
				goroutines, before = runtime.NumGoroutine(), heap()
			}
		}
		<-time.After(time.Minute)
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+5)
		assert.Less(t, heap(), before+before/5+1<<20)
		assert.Empty(t, b.Subscriptions())
		s.Heal()
		require.NoError(t, b.Publisher().Publish(t.Context(), "orders", "x"))
		shutdown(t, b)
		require.NoError(t, s.Close())
	})
}
