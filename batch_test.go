package amqpflow_test

import (
	"context"
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

// A mark wins over what the handler returns, a settlement over a mark.
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

// A batch is of one link: no settlement of one can reach another.

// exitingCodec ends the goroutine that decodes "exit".
type exitingCodec struct{ amqpflow.Codec }

func (c exitingCodec) Decode(data []byte, v any) error {
	if string(data) == `"exit"` {
		runtime.Goexit()
	}
	return c.Codec.Decode(data, v)
}

// The one fails, the others of the batch go back uncounted, the next batch is
// handled.
func TestSubscribeBatch_goexitWhileItIsDecodedLeavesNothingUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled gathered[string]
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		sub := amqpflow.SubscribeBatch(b, "orders", func(_ context.Context, ms []*amqpflow.Message[name]) error {
			for _, m := range ms {
				handled.add(string(m.Body))
			}
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 5, RetryMin: -1, Codec: exitingCodec{amqpflow.JSON()}})
		p.connect(b)
		for _, body := range []string{`"a"`, `broken`, `"exit"`, `"b"`, `"c"`, `"d"`} {
			p.deliver("orders", data(body))
		}
		<-time.After(time.Second)
		released := []wire.StateKind{wire.StateReleased}
		assert.Equal(t, map[uint32][]wire.StateKind{
			0: released, 1: {wire.StateRejected}, 2: {wire.StateModified}, 3: released, 4: released, 5: {wire.StateAccepted},
		}, p.outcomes())
		assert.Equal(t, []string{"d"}, handled.all())
		assert.Zero(t, sub.Stats().Running)
		shutdown(t, b)
	})
}
