package amqpflow_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// sendsArriveInOrderConfirmedOnce reads what was sent meanwhile, with a
// subscription of another broker.
func sendsArriveInOrderConfirmedOnce(t *testing.T, p suitePeer) {
	const n = 10 * stormSize
	q := p.newQueue(t, testQueueOptions{})
	var confirmed, other atomic.Int64
	b := brokerAt(p, &amqpflow.Options{Observer: &amqpflow.Observer{
		Published: func(_ amqpflow.Address, o amqpflow.Outcome, _ time.Duration, err error) {
			if o == amqpflow.Accepted && err == nil {
				confirmed.Add(1)
			} else {
				other.Add(1)
			}
		},
	}})
	mustConnect(t, b)
	reader := brokerAt(p)
	next := 0
	all := make(chan struct{})
	amqpflow.Subscribe(reader, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		if want := fmt.Sprint(next); m.Body != want {
			t.Errorf("%q came instead of %q", m.Body, want)
			return amqpflow.FailFast(assert.AnError)
		}
		if next++; next == n {
			close(all)
		}
		return nil
	}, &amqpflow.SubscribeOptions{Credit: 1000})
	mustConnect(t, reader)

	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	started := time.Now()
	receipts := make([]*amqpflow.Receipt, n)
	for i := range receipts {
		var err error
		if receipts[i], err = b.Publisher().Send(ctx, q.addr, fmt.Sprint(i)); err != nil {
			require.NoError(t, err, "message %d", i)
		}
	}
	require.NoError(t, b.Publisher().Flush(ctx))
	for i, r := range receipts {
		select {
		case <-r.Done():
		default:
			require.Fail(t, "not known after Flush", "message %d", i)
		}
		if err := r.Wait(ctx); err != nil {
			require.NoError(t, err, "message %d", i)
		}
	}
	t.Logf("%d sent and confirmed in %v", n, time.Since(started))
	await(t, 4*patience, all)
	shutDown(t, b)
	shutDown(t, reader)
	assert.Equal(t, int64(n), confirmed.Load())
	assert.Zero(t, other.Load())
	assert.Empty(t, q.rest(t))
}

// publishBetweenSendsWaitsForThem publishes now and then between Sends.
func publishBetweenSendsWaitsForThem(t *testing.T, p suitePeer) {
	const n, every = 500, 50
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)
	var receipts []*amqpflow.Receipt
	for i := range n {
		if i%every != every-1 {
			r, err := b.Publisher().Send(patient(t), q.addr, fmt.Sprint(i))
			require.NoError(t, err)
			receipts = append(receipts, r)
			continue
		}
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, fmt.Sprint(i)))
		for _, r := range receipts {
			select {
			case <-r.Done():
			default:
				require.Fail(t, "a Publish went past a Send")
			}
		}
	}
	assert.Equal(t, numbered(n), bodiesOf(q.take(t, n)))
}

// receiptsAnswerAnybodyAtAnyTime waits for each receipt from many goroutines,
// and again after Shutdown.
func receiptsAnswerAnybodyAtAnyTime(t *testing.T, p suitePeer) {
	const n, waiters = 50, 20
	q := p.newQueue(t, testQueueOptions{})
	nowhere := p.unroutable(t)
	b := brokerAt(p)
	mustConnect(t, b)
	receipts := make([]*amqpflow.Receipt, n)
	for i := range receipts {
		addr := q.addr
		if i%2 == 1 && nowhere != "" {
			addr = nowhere
		}
		var err error
		receipts[i], err = b.Publisher().Send(patient(t), addr, fmt.Sprint(i))
		require.NoError(t, err)
	}
	check := func() {
		for i, r := range receipts {
			err := r.Wait(patient(t))
			if i%2 == 0 || nowhere == "" {
				assert.NoError(t, err)
				continue
			}
			var refused *amqpflow.PublishError
			if assert.ErrorAs(t, err, &refused) {
				assert.Equal(t, amqpflow.Released, refused.Outcome)
			}
		}
	}
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(check)
	}
	wg.Wait()
	shutDown(t, b)
	check()
	_, err := b.Publisher().Send(patient(t), q.addr, "late")
	assert.ErrorIs(t, err, amqpflow.ErrNotConnected)
}

// shutdownWaitsForSendsUnderWay calls Shutdown with the last Sends not
// confirmed: their outcomes are known when it returns.
func shutdownWaitsForSendsUnderWay(t *testing.T, p suitePeer) {
	const n = 200
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)
	receipts := make([]*amqpflow.Receipt, n)
	for i := range receipts {
		var err error
		receipts[i], err = b.Publisher().Send(patient(t), q.addr, fmt.Sprint(i))
		require.NoError(t, err)
	}
	shutDown(t, b)
	for _, r := range receipts {
		select {
		case <-r.Done():
			assert.NoError(t, r.Wait(t.Context()))
		default:
			assert.Fail(t, "not known after Shutdown")
		}
	}
	assert.Equal(t, numbered(n), bodiesOf(q.take(t, n)))
}
