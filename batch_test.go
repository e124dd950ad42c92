package amqpflow_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// serveBatches connects a broker with one batch subscription to "orders" to a
// new peer.
func serveBatches[T any](t *testing.T, fn amqpflow.BatchHandler[T], so *amqpflow.SubscribeOptions, bo ...*amqpflow.Options) (*peer, *amqpflow.Broker, *amqpflow.Subscription) {
	t.Helper()
	p := newPeer(t)
	b := amqpflow.New("amqp://localhost", bo...)
	sub := amqpflow.SubscribeBatch(b, "orders", fn, so)
	p.connect(b)
	return p, b, sub
}

type batchCall struct {
	bodies []string
	at     time.Duration
}

// batchCalls reports each batch, and when it came.
func batchCalls(started time.Time) (chan batchCall, amqpflow.BatchHandler[string]) {
	calls := make(chan batchCall, 100)
	return calls, func(_ context.Context, ms []*amqpflow.Message[string]) error {
		calls <- batchCall{bodiesOfBatch(ms), time.Since(started)}
		return nil
	}
}

func TestSubscribeBatch_fullOneDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, handler := batchCalls(time.Now())
		p, b, _ := serveBatches(t, handler, &amqpflow.SubscribeOptions{BatchSize: 3, BatchWait: time.Hour, Credit: 10})
		for i := range 7 {
			p.deliver("orders", data(strconv.Itoa(i)))
		}
		synctest.Wait()
		require.Len(t, calls, 2)
		assert.Equal(t, batchCall{[]string{"0", "1", "2"}, 0}, <-calls)
		assert.Equal(t, batchCall{[]string{"3", "4", "5"}, 0}, <-calls)
		started := time.Now()
		shutdown(t, b)
		assert.Less(t, time.Since(started), time.Second, "nobody waits for the rest of a batch")
		assert.Equal(t, []wire.StateKind{wire.StateReleased}, p.outcomes()[6])
	})
}

// The wait counts from the coming of the first delivery, also when a batch
// before it was under way then.
func TestSubscribeBatch_waitsFromItsFirstDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, handler := batchCalls(time.Now())
		p, b, _ := serveBatches(t, handler, &amqpflow.SubscribeOptions{BatchSize: 10, BatchWait: 50 * time.Millisecond})
		started := time.Now()
		at := func(d time.Duration, body string) {
			<-time.After(time.Until(started.Add(d)))
			p.deliver("orders", data(body))
		}
		at(20*time.Millisecond, "a")
		at(40*time.Millisecond, "b")
		at(69*time.Millisecond, "c")
		assert.Equal(t, batchCall{[]string{"a", "b", "c"}, 70 * time.Millisecond}, <-calls)
		at(200*time.Millisecond, "d")
		assert.Equal(t, batchCall{[]string{"d"}, 250 * time.Millisecond}, <-calls)
		shutdown(t, b)
	})
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		calls := make(chan batchCall, 10)
		p, b, _ := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[string]) error {
			calls <- batchCall{bodiesOfBatch(ms), time.Since(started)}
			if ms[0].Body == "slow" {
				<-time.After(time.Second)
			}
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 10, BatchWait: 100 * time.Millisecond})
		p.deliver("orders", data("slow"))
		require.Equal(t, batchCall{[]string{"slow"}, 100 * time.Millisecond}, <-calls)
		<-time.After(850 * time.Millisecond) // 950 ms
		p.deliver("orders", data("next"))
		<-time.After(120 * time.Millisecond) // 1070 ms: the first call ends at 1100
		p.deliver("orders", data("too"))
		assert.Equal(t, batchCall{[]string{"next", "too"}, 1100 * time.Millisecond}, <-calls, "its wait is over already")
		shutdown(t, b)
	})
}

func TestSubscribeBatch_defaultsAreHundredAndTenMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, handler := batchCalls(time.Now())
		p, b, _ := serveBatches(t, handler, nil)
		for i := range 101 {
			p.deliver("orders", data(strconv.Itoa(i)))
		}
		first, second := <-calls, <-calls
		assert.Len(t, first.bodies, 100)
		assert.Zero(t, first.at)
		assert.Len(t, second.bodies, 1)
		assert.Equal(t, 10*time.Millisecond, second.at)
		shutdown(t, b)
	})
}

func TestSubscribeBatch_workersAreBatchesAtOnceNoneOfThemTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, workers = 5, 3
		calls, goOn := make(chan []string, 100), make(chan struct{})
		p, b, sub := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[string]) error {
			calls <- bodiesOfBatch(ms)
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: size, BatchWait: time.Minute, Workers: workers})
		for i := range size * (workers + 1) {
			p.deliver("orders", data(strconv.Itoa(i)))
			if i%2 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		require.Len(t, calls, workers)
		for range workers {
			assert.Len(t, <-calls, size)
		}
		assert.Equal(t, size*workers, sub.Stats().Running)
		assert.Equal(t, size, sub.Stats().Held)
		close(goOn)
		assert.Len(t, <-calls, size)
		shutdown(t, b)
	})
}

func TestSubscribeBatch_undecodableIsSettledBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, goOn := make(chan []part, 10), make(chan struct{})
		var p *peer
		p, b, sub := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[part]) error {
			started <- bodiesOfBatch(ms)
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 3, Credit: 10})
		for _, body := range []string{`{"n":0}`, `bad`, `{"n":2}`, `bad`, `bad`, `bad`} {
			p.deliver("orders", data(body))
		}
		assert.Equal(t, []part{{0}, {2}}, <-started)
		quiet()
		outcomes := p.outcomes()
		assert.Equal(t, map[uint32][]wire.StateKind{1: {wire.StateRejected}}, outcomes)
		close(goOn)
		quiet()
		outcomes = p.outcomes()
		require.Len(t, outcomes, 6)
		for id, want := range []wire.StateKind{wire.StateAccepted, wire.StateRejected, wire.StateAccepted, wire.StateRejected, wire.StateRejected, wire.StateRejected} {
			assert.Equal(t, []wire.StateKind{want}, outcomes[uint32(id)])
		}
		assert.Empty(t, started, "no call for a batch in which nothing is left")
		assert.Zero(t, sub.Stats().Running)
		p.deliver("orders", data(`{"n":6}`))
		assert.Equal(t, []part{{6}}, <-started, "the worker lives")
		shutdown(t, b)
	})
}

func TestSubscribeBatch_onFailureDecidesAboutTheUndecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		p, b, _ := serveBatches(t, func(context.Context, []*amqpflow.Message[part]) error { return errors.New("whole") },
			&amqpflow.SubscribeOptions{BatchSize: 2, OnFailure: func(_ *amqpflow.Delivery, err error) error {
				failures = append(failures, err)
				return amqpflow.Release()
			}})
		p.deliver("orders", data("bad"))
		p.deliver("orders", data(`{"n":1}`))
		quiet()
		require.Len(t, failures, 2)
		var bad *amqpflow.DecodeError
		require.ErrorAs(t, failures[0], &bad)
		require.EqualError(t, failures[1], "whole")
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateReleased}, 1: {wire.StateReleased}}, p.outcomes())
		shutdown(t, b)
	})
}

// A mark wins over what the handler returns, a settlement over a mark.
func TestDelivery_markIsTheOutcomeUnlessItIsSettled(t *testing.T) {
	for name, result := range map[string]error{"nil": nil, "an error": errors.New("x"), "an outcome": amqpflow.Reject(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p, b, _ := serveBatches(t, func(ctx context.Context, ms []*amqpflow.Message[string]) error {
					ms[0].Mark(nil)
					ms[1].Mark(errors.New("a retry"))
					ms[2].Mark(amqpflow.Reject(errors.New("bad")))
					ms[3].Mark(nil)
					ms[3].Mark(amqpflow.Release())
					assert.NoError(t, ms[4].Settle(ctx, amqpflow.Release()))
					ms[4].Mark(amqpflow.Reject(nil))
					ms[5].Mark(nil)
					assert.NoError(t, ms[5].Settle(ctx, amqpflow.Release()))
					return result
				}, &amqpflow.SubscribeOptions{BatchSize: 7, OnFailure: func(_ *amqpflow.Delivery, err error) error {
					asked++
					return err
				}})
				for range 7 {
					p.deliver("orders", data("x"))
				}
				quiet()
				returned := map[string]wire.StateKind{"nil": wire.StateAccepted, "an error": wire.StateModified, "an outcome": wire.StateRejected}
				assert.Equal(t, map[uint32][]wire.StateKind{
					0: {wire.StateAccepted}, 1: {wire.StateModified}, 2: {wire.StateRejected}, 3: {wire.StateReleased},
					4: {wire.StateReleased}, 5: {wire.StateReleased}, 6: {returned[name]},
				}, p.outcomes())
				want := 0
				if name == "an error" {
					want = 1
				}
				assert.Equal(t, want, asked, "OnFailure is not asked about marks")
				shutdown(t, b)
			})
		})
	}
}

func TestDelivery_markWinsOverASingleHandlersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			d.Mark(amqpflow.Release())
			return errors.New("x")
		}, nil)
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateReleased}}, p.outcomes())
		shutdown(t, b)
	})
}

func TestSubscribeBatch_panicAndGoexitSettleEachOnce(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("x") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook)
				calls := 0
				p, b, sub := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[string]) error {
					if calls++; calls == 1 {
						ms[0].Mark(nil)
						assert.NoError(t, ms[1].Accept(t.Context()))
						end()
					}
					return nil
				}, &amqpflow.SubscribeOptions{BatchSize: 4}, &amqpflow.Options{Logger: book.logger()})
				for range 8 {
					p.deliver("orders", data("x"))
				}
				quiet()
				outcomes := p.outcomes()
				require.Len(t, outcomes, 8)
				for id := range uint32(8) {
					want := wire.StateAccepted
					if id == 2 || id == 3 {
						want = wire.StateModified
					}
					assert.Equal(t, []wire.StateKind{want}, outcomes[id], "delivery %d", id)
				}
				assert.Equal(t, 2, calls, "the worker lives")
				assert.Zero(t, sub.Stats().Running)
				book.assertLine(t, "level=ERROR", "handler panicked", "address=orders", "stack=")
				shutdown(t, b)
			})
		})
	}
}

func TestSubscribeBatch_sliceIsTheHandlersToKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept [][]*amqpflow.Message[string]
		p, b, _ := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[string]) error {
			kept = append(kept, ms)
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 2})
		for i := range 6 {
			p.deliver("orders", data(strconv.Itoa(i)))
		}
		quiet()
		require.Len(t, kept, 3)
		for i, ms := range kept {
			assert.Equal(t, []string{strconv.Itoa(2 * i), strconv.Itoa(2*i + 1)}, bodiesOfBatch(ms))
		}
		shutdown(t, b)
	})
}

func TestSubscribeBatch_atMostOnceSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, handler := batchCalls(time.Now())
		p, b, sub := serveBatches(t, handler, &amqpflow.SubscribeOptions{BatchSize: 2, Credit: 4, AtMostOnce: true})
		for range 20 {
			p.deliver("orders", data("x"))
		}
		quiet()
		assert.Len(t, calls, 10, "their places in the window are free again")
		assert.Empty(t, p.outcomes())
		assert.Zero(t, sub.Stats().Accepted)
		shutdown(t, b)
	})
}

// A batch is of one link: no settlement of one can reach another.
func TestSubscribeBatch_contextEndsWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		p, b, sub := serveBatches(t, func(ctx context.Context, ms []*amqpflow.Message[string]) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			assert.ErrorIs(t, ms[0].Accept(ctx), amqpflow.ErrLinkLost)
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 2})
		p.deliver("orders", data("a"))
		p.deliver("orders", data("b"))
		quiet()
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: &wire.Error{Condition: "acme:gone"}})
		require.ErrorIs(t, <-cause, amqpflow.ErrLinkLost)
		<-sub.Done()
		quiet()
		assert.Empty(t, p.outcomes())
		shutdown(t, b)
	})
}
