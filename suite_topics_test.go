package amqpflow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// everySubscriptionOfATopicGetsACopy publishes to a topic as each peer has it.
func everySubscriptionOfATopicGetsACopy(t *testing.T, p suitePeer) {
	switch p := p.(type) {
	case *rabbitPeer:
		topicOfRabbitMQ(t, p)
	default:
		name := uniqueName()
		b := brokerAt(p)
		got := make(chan string, 10)
		for _, who := range []string{"one", "two"} {
			amqpflow.Subscribe(b, amqpflow.Topic(name), func(_ context.Context, m *amqpflow.Message[string]) error {
				got <- who + " " + m.Body
				return nil
			})
		}
		mustConnect(t, b)
		if p, ok := p.(*artemisPeer); ok {
			t.Cleanup(func() { p.deleteAddresses(t, []string{name}) })
		}
		require.NoError(t, b.Publisher().Publish(patient(t), amqpflow.Topic(name), "published"))
		r, err := b.Publisher().Send(patient(t), amqpflow.Topic(name), "sent")
		require.NoError(t, err)
		require.NoError(t, r.Wait(patient(t)))
		bodies := make([]string, 4)
		for i := range bodies {
			bodies[i] = await(t, patience, got)
		}
		assert.ElementsMatch(t, []string{"one published", "one sent", "two published", "two sent"}, bodies)
		shutDown(t, b)
		assert.Empty(t, got)
	}
}

// topicOfRabbitMQ publishes to the topic exchange, to which a queue has to be
// bound to receive from it.
func topicOfRabbitMQ(t *testing.T, p *rabbitPeer) {
	q, key := p.newQueue(t, testQueueOptions{}), uniqueName()
	b := brokerAt(p)
	deliveries := deliveriesOf(t, b, q)
	mustConnect(t, b)
	var refused *amqpflow.PublishError
	require.ErrorAs(t, b.Publisher().Publish(patient(t), amqpflow.Topic(key), "nobody"), &refused)
	assert.Equal(t, amqpflow.Released, refused.Outcome)
	p.manage(t, "POST", "/bindings", map[string]any{
		"source": "amq.topic", "destination_queue": q.name, "binding_key": key, "arguments": map[string]any{},
	})
	require.NoError(t, b.Publisher().Publish(patient(t), amqpflow.Topic(key), "x"))
	assert.Equal(t, "x", string(await(t, patience, deliveries).Data()))
	late := b.Subscribe(amqpflow.Topic(key), accepting)
	err := late.Attached(patient(t))
	require.ErrorIs(t, err, amqpflow.ErrUnsupported)
	assert.ErrorContains(t, err, "bind a queue")
	shutDown(t, b)
}
