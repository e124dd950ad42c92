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
	"github.com/amqpflow/amqpflow/internal/wire"
)

// window counts what a peer sees of a client's window: sent and not settled.
type window struct {
	p    *peer
	sent int
}

// outstanding is what the client holds, and what it may be sent besides.
func (w *window) outstanding(l *peerLink) (unsettled, granted int) {
	settled := 0
	for _, kinds := range w.p.outcomes() {
		settled += len(kinds)
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.sent - settled, int(int32(l.limit - l.count))
}

// Handlers that settle in any order: the window is never exceeded, and credit
// comes back for settlements, not for arrivals.
func TestFieldReport_B10_windowHoldsWhateverTheOrderOfSettlement(t *testing.T) {
	const credit, total = 10, 300
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		var mu sync.Mutex
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			<-time.After(time.Duration(rand.IntN(50)) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			handled++
			return nil
		}, &amqpflow.SubscribeOptions{Credit: credit, Workers: 4})
		w := &window{p: p}
		l := p.link("orders", wire.RoleReceiver)
		for range total {
			p.deliver("orders", data("x"))
			w.sent++
			synctest.Wait()
			unsettled, granted := w.outstanding(l)
			require.LessOrEqual(t, unsettled+max(granted, 0), credit)
		}
		<-time.After(time.Second)
		unsettled, granted := w.outstanding(l)
		assert.Zero(t, unsettled)
		assert.Greater(t, granted, credit/2, "less than half of the window may wait to be granted")
		assert.Equal(t, total, handled)
		assert.Equal(t, uint64(total), sub.Stats().Accepted)
		shutdown(t, b)
	})
}

// Handlers that publish to fresh addresses and wait for the confirmation, with
// more deliveries fetched than there are handlers.
func TestFieldReport_B13_publishingInAHandlerNeverHangs(t *testing.T) {
	const total = 250 // addresses: more than there are links
	for _, workers := range []int{1, 8} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := amqptest.NewServer()
				for i := range total {
					require.NoError(t, server.Put("orders", amqp.NewMessage(fmt.Append(nil, i))))
				}
				b := amqpflow.New("amqp://localhost")
				pub := b.Publisher()
				amqpflow.Subscribe(b, "orders", func(ctx context.Context, m *amqpflow.Message[int]) error {
					fresh := amqpflow.Address(fmt.Sprint("fresh", m.Body))
					receipt, err := pub.Send(ctx, "log", m.Body)
					return errors.Join(err, pub.Publish(ctx, fresh, m.Body), receipt.Wait(ctx), m.Accept(ctx))
				}, &amqpflow.SubscribeOptions{Credit: 50, Workers: workers})
				amqpflow.SubscribeReply(b, "log", func(context.Context, *amqpflow.Message[int]) (string, error) {
					return "seen", nil
				}, &amqpflow.SubscribeOptions{ReplyTo: "seen", Workers: workers})
				require.NoError(t, server.Connect(t.Context(), b))
				for range 100 {
					if <-time.After(time.Second); len(server.Messages("seen")) == total {
						break
					}
				}
				require.Len(t, server.Messages("seen"), total)
				for i := range total {
					assert.Len(t, server.Messages(amqpflow.Address(fmt.Sprint("fresh", i))), 1)
				}
				shutdown(t, b)
				assert.Len(t, server.Settlements("orders"), total)
				require.NoError(t, server.Close())
			})
		})
	}
}

// An end in the middle of the work, with a producer that goes on and a second
// consumer: what was accepted stays so, what was not begun goes to the other
// at once, and nothing is done twice.
func TestFieldReport_B19_shutdownLosesNoAcknowledgement(t *testing.T) {
	const total = 200
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer()
		var mu sync.Mutex
		done, begun := map[string]int{}, 0
		work := func(_ context.Context, d *amqpflow.Delivery) error {
			mu.Lock()
			begun++
			mu.Unlock()
			<-time.After(300 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			done[string(d.Data())]++
			assert.Equal(t, 1, d.Attempt(), "what went back was not counted")
			return nil
		}
		first, second := amqpflow.New("amqp://localhost"), amqpflow.New("amqp://localhost")
		options := &amqpflow.SubscribeOptions{Credit: 50, Workers: 8}
		ending := first.Subscribe("orders", work, options)
		require.NoError(t, server.Connect(t.Context(), first))
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := range total {
				assert.NoError(t, server.Put("orders", amqp.NewMessage(fmt.Append(nil, i))))
				<-time.After(10 * time.Millisecond)
			}
		})
		<-time.After(time.Second)
		second.Subscribe("orders", work, options)
		require.NoError(t, server.Connect(t.Context(), second))
		require.NotZero(t, ending.Stats().Running)
		require.NoError(t, first.Shutdown(within(t, 10*time.Second)))
		accepted := ending.Stats().Accepted
		assert.NotZero(t, accepted)
		producer.Wait()
		require.NoError(t, server.Idle(t.Context()))
		shutdown(t, second)
		assert.Len(t, done, total)
		for body, n := range done {
			assert.Equal(t, 1, n, body)
		}
		assert.Equal(t, total, begun)
		require.NoError(t, server.Close(), "nothing came after the detach")
	})
}

type explodingCodec struct{ amqpflow.Codec }

func (explodingCodec) Decode([]byte, any) error { panic("in the codec") }

// Whatever panics, in whatever kind of handler: the process lives, the delivery
// has one outcome, and the slot is free.
func TestFieldReport_B25_panicsAreFailuresWhereverTheyAre(t *testing.T) {
	blow := func(ctx context.Context, d *amqpflow.Delivery) error {
		switch string(d.Data()) {
		case "an error":
			panic(errors.New("boom"))
		case "a string":
			panic("boom")
		case "nil":
			panic(nil) //nolint:govet // what is tested
		case "exit":
			runtime.Goexit()
		case "after settling":
			_ = d.Accept(ctx)
			panic("boom")
		}
		return errors.New("a plain error")
	}
	exploding := func(amqpflow.CallFunc) amqpflow.CallFunc {
		return func(context.Context, *amqpflow.Call) error { panic("in the middleware") }
	}
	for name, subscribe := range map[string]func(*amqpflow.Broker) *amqpflow.Subscription{
		"single": func(b *amqpflow.Broker) *amqpflow.Subscription { return b.Subscribe("orders", blow) },
		"lanes": func(b *amqpflow.Broker) *amqpflow.Subscription {
			return b.Subscribe("orders", blow, &amqpflow.SubscribeOptions{Workers: 3, PartitionBy: func(*amqpflow.Delivery) string { panic("in PartitionBy") }})
		},
		"reply": func(b *amqpflow.Broker) *amqpflow.Subscription {
			return amqpflow.SubscribeReply(b, "orders", func(ctx context.Context, m *amqpflow.Message[string]) (string, error) {
				return "", blow(ctx, m.Delivery)
			}, &amqpflow.SubscribeOptions{ReplyTo: "out", Workers: 2})
		},
		"batch": func(b *amqpflow.Broker) *amqpflow.Subscription {
			return amqpflow.SubscribeBatch(b, "orders", func(ctx context.Context, ms []*amqpflow.Message[string]) error {
				return blow(ctx, ms[0].Delivery)
			}, &amqpflow.SubscribeOptions{BatchSize: 2})
		},
		"codec": func(b *amqpflow.Broker) *amqpflow.Subscription {
			return amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[Order]) error { return nil },
				&amqpflow.SubscribeOptions{Codec: explodingCodec{amqpflow.JSON()}})
		},
		"codec of a batch": func(b *amqpflow.Broker) *amqpflow.Subscription {
			return amqpflow.SubscribeBatch(b, "orders", func(context.Context, []*amqpflow.Message[Order]) error { return nil },
				&amqpflow.SubscribeOptions{Codec: explodingCodec{amqpflow.JSON()}})
		},
		"middleware": func(b *amqpflow.Broker) *amqpflow.Subscription {
			return b.Subscribe("orders", blow, &amqpflow.SubscribeOptions{Middleware: []amqpflow.Middleware{exploding}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{
					Settled: func(*amqpflow.Delivery, amqpflow.Outcome, time.Duration, error) { panic("in the observer") },
					Error:   func(error) { panic("in the observer") },
				}})
				sub := subscribe(b)
				p.connect(b)
				bodies := []string{"an error", "a string", "nil", "exit", "after settling", "plain", "exit", "exit"}
				for _, body := range bodies {
					p.deliver("orders", data(body))
					quiet()
				}
				<-time.After(time.Second) // batches wait a little
				outcomes := p.outcomes()
				for id, body := range bodies {
					want := wire.StateModified
					if body == "after settling" && name != "middleware" && name != "codec" && name != "codec of a batch" {
						want = wire.StateAccepted
					}
					assert.Equal(t, []wire.StateKind{want}, outcomes[uint32(id)], body)
				}
				assert.Equal(t, amqpflow.Attached, sub.State())
				assert.Zero(t, sub.Stats().Running)
				shutdown(t, b)
			})
		})
	}
}
