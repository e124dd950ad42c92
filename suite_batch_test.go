package amqpflow_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// bodiesOfBatch are the bodies of a batch, in its order.
func bodiesOfBatch[T any](ms []*amqpflow.Message[T]) []T {
	bodies := make([]T, len(ms))
	for i, m := range ms {
		bodies[i] = m.Body
	}
	return bodies
}

// batchesAreFullOrHaveWaited stores more than one batch before anybody reads,
// and one message when everything else is handled.
func batchesAreFullOrHaveWaited(t *testing.T, p suitePeer) {
	const n, size, wait = 450, 100, 100 * time.Millisecond
	q := p.newQueue(t, testQueueOptions{})
	bodies := numbered(n + 1)
	q.putBodies(t, bodies[:n]...)
	batches := make(chan []string, n)
	b := brokerAt(p)
	sub := amqpflow.SubscribeBatch(b, q.addr, func(_ context.Context, ms []*amqpflow.Message[string]) error {
		batches <- bodiesOfBatch(ms)
		return nil
	}, &amqpflow.SubscribeOptions{BatchSize: size, BatchWait: wait})
	mustConnect(t, b)

	var got []string
	full := 0
	for len(got) < n {
		batch := await(t, patience, batches)
		assert.LessOrEqual(t, len(batch), size)
		if len(batch) == size {
			full++
		}
		got = append(got, batch...)
	}
	assert.Equal(t, bodies[:n], got, "in order, from batch to batch")
	assert.GreaterOrEqual(t, full, n/size/2, "what is there fills a batch")

	started := time.Now()
	q.putBodies(t, bodies[n])
	assert.Equal(t, bodies[n:], await(t, patience, batches), "one alone does not wait for ever")
	assert.GreaterOrEqual(t, time.Since(started), wait)
	shutDown(t, b)
	assert.Equal(t, uint64(n+1), sub.Stats().Accepted)
	assert.Empty(t, q.rest(t))
}

type part struct {
	N int `json:"n"`
}

// batchSettlesEachByItsMark has one message that cannot be decoded, which is
// rejected before the call, and a mark of each kind; the handler's error is
// for those that have none.
func batchSettlesEachByItsMark(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	jsonMessage := func(body string) *amqp.Message {
		m := textMessage(body)
		m.Properties = &amqp.MessageProperties{ContentType: new("application/json")}
		return m
	}
	q.put(t, jsonMessage(`{"n":0}`), jsonMessage(`{"n":1}`), jsonMessage(`{"n":`), jsonMessage(`{"n":2}`), jsonMessage(`{"n":3}`))
	type seen struct{ n, attempt int }
	var mu sync.Mutex // guards calls and first
	var calls []seen
	var first []int
	done := make(chan struct{})
	b := brokerAt(p)
	sub := amqpflow.SubscribeBatch(b, q.addr, func(_ context.Context, ms []*amqpflow.Message[part]) error {
		mu.Lock()
		defer mu.Unlock()
		var result error
		for _, m := range ms {
			calls = append(calls, seen{m.Body.N, m.Attempt()})
			if m.Attempt() > 1 {
				continue
			}
			first = append(first, m.Body.N)
			result = errors.New("some of the batch failed")
			switch m.Body.N {
			case 0:
				m.Mark(amqpflow.Release())
				m.Mark(nil) // the last one counts
			case 1:
				m.Mark(amqpflow.Reject(errors.New("bad")))
			case 2:
				m.Mark(amqpflow.Retry(errors.New("later")))
			}
		}
		if len(calls) == 6 {
			close(done)
		}
		return result
	}, &amqpflow.SubscribeOptions{BatchSize: 5, BatchWait: 300 * time.Millisecond})
	mustConnect(t, b)
	await(t, patience, done)
	require.Eventually(t, func() bool { return sub.Stats().Accepted == 3 }, patience, 5*time.Millisecond)
	shutDown(t, b)

	assert.Equal(t, []int{0, 1, 2, 3}, first)
	assert.ElementsMatch(t, []seen{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {2, 2}, {3, 2}}, calls)
	stats := sub.Stats()
	assert.Equal(t, uint64(7), stats.Received)
	assert.Equal(t, uint64(2), stats.Rejected, "undecodable, and by its mark")
	assert.Equal(t, uint64(2), stats.Modified, "by its mark, and by the return")
	assert.ElementsMatch(t, []string{`{"n":1}`, `{"n":`}, bodiesOf(p.deadLetters(t, q, 2)))
	assert.Empty(t, q.rest(t))
}

// panicInABatchSettlesEachOnce panics on every first attempt: each delivery
// comes back once, and no more.
func panicInABatchSettlesEachOnce(t *testing.T, p suitePeer) {
	const n = 30
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, numbered(n)...)
	var mu sync.Mutex // guards both
	var failed, passed []string
	done := make(chan struct{})
	b := brokerAt(p)
	sub := amqpflow.SubscribeBatch(b, q.addr, func(_ context.Context, ms []*amqpflow.Message[string]) error {
		mu.Lock()
		defer mu.Unlock()
		if slices.ContainsFunc(ms, func(m *amqpflow.Message[string]) bool { return m.Attempt() == 1 }) {
			for _, m := range ms {
				if m.Attempt() == 1 {
					failed = append(failed, m.Body)
				} else {
					m.Mark(nil)
					passed = append(passed, m.Body)
				}
			}
			if len(passed) == n {
				close(done)
			}
			panic("the batch is bad")
		}
		if passed = append(passed, bodiesOfBatch(ms)...); len(passed) == n {
			close(done)
		}
		return nil
	}, &amqpflow.SubscribeOptions{BatchSize: 10})
	mustConnect(t, b)
	await(t, patience, done)
	require.Eventually(t, func() bool { return sub.Stats().Accepted == n }, patience, 5*time.Millisecond)
	shutDown(t, b)

	assert.ElementsMatch(t, numbered(n), failed)
	assert.ElementsMatch(t, numbered(n), passed)
	assert.Equal(t, amqpflow.Stats{Received: 2 * n, Accepted: n, Modified: n}, sub.Stats())
	assert.Empty(t, q.rest(t))
	assert.Empty(t, p.deadLetters(t, q, 0))
}
