package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// deadLettersAreHandledLikeAnyOther subscribes to the queue to which the peer
// puts what was rejected, with whatever it has written on it, and forwards it.
func deadLettersAreHandledLikeAnyOther(t *testing.T, p suitePeer) {
	const n = 3
	dead, forwarded := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	q := p.newQueue(t, testQueueOptions{deadLetterQueue: dead})
	observer, errs := errorsObserved()
	b := brokerAt(p, &amqpflow.Options{Observer: observer})
	b.Subscribe(q.addr, func(context.Context, *amqpflow.Delivery) error {
		return amqpflow.Reject(errors.New("by the suite"))
	})
	annotations := make(chan map[any]any, n+1)
	letters := b.Subscribe(dead.addr, func(ctx context.Context, d *amqpflow.Delivery) error {
		m, err := d.AMQP()
		if !assert.NoError(t, err) {
			return err
		}
		annotations <- m.Annotations
		return b.Publisher().Publish(ctx, forwarded.addr, m)
	}, &amqpflow.SubscribeOptions{Credit: 1, RetryMax: 10 * time.Millisecond})
	mustConnect(t, b)
	want := numbered(n)
	for _, body := range want {
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, body))
	}
	for range n {
		written := await(t, patience, annotations)
		if _, rabbit := p.(*rabbitPeer); rabbit {
			assert.NotEmpty(t, written["x-opt-deaths"], "an array of maps: %v", written)
		}
	}
	require.NoError(t, b.Publisher().Publish(patient(t), dead.addr, "a good one"))
	await(t, patience, annotations)
	require.Eventually(t, func() bool { return letters.Stats().Accepted == n+1 }, patience, time.Millisecond)

	assert.Zero(t, letters.Stats().Reattached)
	assert.Equal(t, uint64(n+1), letters.Stats().Received)
	assert.NoError(t, b.Ready())
	shutDown(t, b)
	assert.Empty(t, errs.all())
	assert.Equal(t, append(want, "a good one"), bodiesOf(forwarded.take(t, n+1)))
	assert.Empty(t, dead.rest(t))
}
