package amqpflow_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// orderedRetryKeepsTheOrder has handlers that fail every third message twice.
func orderedRetryKeepsTheOrder(t *testing.T, p suitePeer) {
	const keys, perKey = 6, 12
	q := p.newQueue(t, testQueueOptions{})
	q.put(t, interleaved(keys, perKey)...)
	var mu sync.Mutex // guards the next two
	handled := map[string][]string{}
	total := 0
	done := make(chan struct{})
	b := brokerAt(p)
	sub := amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		mu.Lock()
		defer mu.Unlock()
		number := len(handled[m.GroupID()])
		if number%3 == 2 && m.Attempt() < 3 {
			return errors.New("not yet")
		}
		handled[m.GroupID()] = append(handled[m.GroupID()], m.Body)
		if total++; total == keys*perKey {
			close(done)
		}
		return nil
	}, &amqpflow.SubscribeOptions{Workers: 4, PartitionBy: byGroup, OrderedRetry: true, RetryMax: 20 * time.Millisecond})
	mustConnect(t, b)
	await(t, patience, done)
	shutDown(t, b)
	assertInOrder(t, handled, keys, perKey)
	assert.Equal(t, uint64(keys*perKey), sub.Stats().Accepted)
	assert.Zero(t, sub.Stats().Modified, "the peer learns nothing of the retries")
	assert.Empty(t, q.rest(t))
}

// pauseHandsBackAndResumeGoesOn has another consumer take what was prefetched.
func pauseHandsBackAndResumeGoesOn(t *testing.T, p suitePeer) {
	const n = 20
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, numbered(n)...)
	begun, finish := make(chan string, 2*n), make(chan struct{})
	b := brokerAt(p)
	sub := amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		begun <- m.Body
		<-finish
		return nil
	})
	mustConnect(t, b)
	require.Equal(t, "0", await(t, patience, begun))
	require.Eventually(t, func() bool { return sub.Stats().Held == n-1 }, patience, time.Millisecond)

	require.NoError(t, sub.Pause(patient(t)))
	require.NoError(t, b.Ready())
	assert.Equal(t, numbered(n)[1:], bodiesOf(q.take(t, n-1)), "in the order in which they were")
	close(finish)
	require.Eventually(t, func() bool { return sub.Stats().Accepted == 1 }, patience, time.Millisecond)
	q.putBodies(t, "meanwhile")
	select {
	case body := <-begun:
		require.Fail(t, "it is paused", body)
	case <-time.After(p.quiet()):
	}

	require.NoError(t, sub.Resume())
	require.Equal(t, "meanwhile", await(t, patience, begun))
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}
