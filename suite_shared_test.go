package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// sharedMessagesArriveWhole publishes the same few messages, with the same map
// of headers, from eight goroutines to four addresses, while subscriptions
// come and go and the connection is cut.
func sharedMessagesArriveWhole(t *testing.T, p suitePeer) {
	const goroutines, each, cuts = 8, 40, 3
	sizes := []int{1, 100, 20_000, 200_000}
	shared := make([]*amqp.Message, len(sizes))
	for i, size := range sizes {
		shared[i] = textMessage(markedBody(fmt.Sprint(size), size))
	}
	headers := map[string]any{"tenant": "acme", "attempt": int64(1)}
	before := maps.Clone(headers)
	var c cutter
	b := amqpflow.WithBackoff(brokerAt(p, &amqpflow.Options{DialContext: c.dial}), 50*time.Millisecond)
	var mu sync.Mutex // guards received and answers
	received, answers := map[string]bool{}, map[string]error{}
	queues := make([]*testQueue, len(sizes))
	handle := func(_ context.Context, d *amqpflow.Delivery) error {
		body := string(d.Data())
		assert.Contains(t, sizes, len(body))
		if body != markedBody(fmt.Sprint(len(body)), len(body)) {
			assert.Fail(t, "a mixed body", "%d bytes are mixed with others", len(body))
		}
		assert.Equal(t, "acme", d.Header("tenant"))
		mu.Lock()
		defer mu.Unlock()
		received[d.MessageID()] = true
		return nil
	}
	for i := range queues {
		queues[i] = p.newQueue(t, testQueueOptions{})
		b.Subscribe(queues[i].addr, handle, &amqpflow.SubscribeOptions{Workers: 2})
	}
	mustConnect(t, b)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", g, i)
				err := publishOrSend(t, b, i%3 == 0, queues[(g+i)%len(queues)].addr, shared[i%len(shared)],
					&amqpflow.PublishOptions{MessageID: id, Headers: headers})
				mu.Lock()
				answers[id] = err
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for i := range each / 2 {
			sub := b.Subscribe(queues[i%len(queues)].addr, handle, &amqpflow.SubscribeOptions{Credit: 5})
			assert.NoError(t, sub.Attached(patient(t)))
			if err := sub.Close(patient(t)); err != nil {
				assert.ErrorIs(t, err, amqpflow.ErrLinkLost)
			}
		}
	})
	for i := range cuts {
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(answers) > (i+1)*goroutines*each/(cuts+2)
		}, patience, time.Millisecond)
		c.cut(i%2 == 0)
	}
	wg.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for id, err := range answers {
			if err == nil && !received[id] {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "what was confirmed is received")
	shutDown(t, b)
	assert.Positive(t, c.cuts)
	requireTrueAnswers(t, answers, received)
	for id, err := range answers {
		assert.True(t, err == nil || errors.Is(err, amqpflow.ErrUncertain), "%s: %v", id, err)
	}
	assert.Equal(t, before, headers)
	for i, size := range sizes {
		assert.Equal(t, textMessage(markedBody(fmt.Sprint(size), size)), shared[i], "what is shared is unchanged")
	}
}

// publishOrSend is a Publish, or a Send and its answer.
func publishOrSend(t *testing.T, b *amqpflow.Broker, publish bool, addr amqpflow.Address, v any, o *amqpflow.PublishOptions) error {
	if publish {
		return b.Publisher().Publish(patient(t), addr, v, o)
	}
	r, err := b.Publisher().Send(patient(t), addr, v, o)
	if err != nil {
		return err
	}
	return r.Wait(patient(t))
}
