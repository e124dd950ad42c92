package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// attempt is one call of a handler, as seen from the first.
type attempt struct {
	number int
	at     time.Duration
}

// failingAt subscribes to q with a handler that answers the first call with
// results[0] and so on, every later one with nil.
func failingAt(b *amqpflow.Broker, q *testQueue, so *amqpflow.SubscribeOptions, results ...error) (*amqpflow.Subscription, <-chan attempt) {
	seen := make(chan attempt, 100)
	var started time.Time
	calls := 0
	sub := b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
		if calls == 0 {
			started = time.Now()
		}
		seen <- attempt{d.Attempt(), time.Since(started)}
		if calls++; calls <= len(results) {
			return results[calls-1]
		}
		return nil
	}, so)
	return sub, seen
}

func retryIsHeldAndComesBackCounted(t *testing.T, p suitePeer) {
	const hold = 400 * time.Millisecond
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "x")
	b := brokerAt(p)
	sub, seen := failingAt(b, q, nil, amqpflow.RetryAfter(hold, errors.New("later")))
	mustConnect(t, b)
	require.Equal(t, 1, await(t, patience, seen).number)
	require.Eventually(t, func() bool { return sub.Stats().Retrying == 1 }, hold, time.Millisecond)
	assert.Zero(t, sub.Stats().Modified, "nothing is settled meanwhile")
	second := await(t, patience, seen)
	assert.Equal(t, 2, second.number)
	assert.GreaterOrEqual(t, second.at, hold)
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
	p.deadLetters(t, q, 0)
}

// longRetryIsThePeersWhereItHoldsIt has the threshold at 300 ms.
func longRetryIsThePeersWhereItHoldsIt(t *testing.T, p suitePeer) {
	const hold = 1500 * time.Millisecond
	amqpflow.SetHandOverAbove(t, 300*time.Millisecond)
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "x")
	b := brokerAt(p)
	sub, seen := failingAt(b, q, &amqpflow.SubscribeOptions{Credit: 1}, amqpflow.RetryAfter(hold, errors.New("much later")))
	mustConnect(t, b)
	require.Equal(t, 1, await(t, patience, seen).number)
	_, holds := p.(*rabbitPeer)
	if holds {
		require.Eventually(t, func() bool { return sub.Stats().Modified == 1 }, hold/2, time.Millisecond)
		assert.Zero(t, sub.Stats().Retrying, "it costs no place in the window")
		q.putBodies(t, "between")
		assert.Less(t, await(t, patience, seen).at, hold)
	} else {
		require.Eventually(t, func() bool { return sub.Stats().Retrying == 1 }, hold/2, time.Millisecond)
	}
	second := await(t, patience, seen)
	assert.Equal(t, 2, second.number)
	assert.GreaterOrEqual(t, second.at, hold-100*time.Millisecond, "the peer's clock apart")
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}

// classicQueueHoldsNoRetry is RabbitMQ's alone.
func classicQueueHoldsNoRetry(t *testing.T, p suitePeer) {
	rabbit, ok := p.(*rabbitPeer)
	if !ok {
		t.Skip("has no classic queues")
	}
	const hold = 1500 * time.Millisecond
	amqpflow.SetHandOverAbove(t, 300*time.Millisecond)
	q := rabbit.queue(uniqueName())
	rabbit.declare(t, q, map[string]any{"x-queue-type": "classic"})
	q.putBodies(t, "x")
	book := new(logbook)
	b := brokerAt(p, &amqpflow.Options{Logger: book.logger()})
	later := amqpflow.RetryAfter(hold, errors.New("much later"))
	sub, seen := failingAt(b, q, nil, later, later)
	mustConnect(t, b)
	await(t, patience, seen)
	second := await(t, patience, seen)
	assert.Less(t, second.at, hold, "the queue gives it back at once")
	book.assertLine(t, "level=WARN", "the peer does not hold retries", string(q.addr))
	require.Eventually(t, func() bool { return sub.Stats().Retrying == 1 }, patience, time.Millisecond, "from then on they are held here")
	third := await(t, patience, seen)
	assert.GreaterOrEqual(t, third.at, second.at+hold)
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}

func lastAttemptIsADeadLetterWithItsReason(t *testing.T, p suitePeer) {
	q, dead := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	m := textMessage("poison")
	m.Properties = fullProperties(t, p)
	m.ApplicationProperties = map[string]any{"tenant": "acme"}
	m.Annotations = map[any]any{"x-opt-suite": "kept"}
	q.put(t, m)
	b := brokerAt(p)
	failed := errors.New("no such customer")
	_, seen := failingAt(b, q, &amqpflow.SubscribeOptions{MaxAttempts: 2, DeadLetter: dead.addr, RetryMin: time.Millisecond}, failed, failed)
	mustConnect(t, b)
	require.Equal(t, 1, await(t, patience, seen).number)
	require.Equal(t, 2, await(t, patience, seen).number)

	letter := dead.take(t, 1)[0]
	shutDown(t, b)
	assert.Equal(t, []string{"poison"}, bodiesOf([]*amqp.Message{letter}))
	headers := letter.ApplicationProperties
	assert.Equal(t, "acme", headers["tenant"])
	assert.Equal(t, "max-attempts", headers["dead-letter-reason"])
	assert.Equal(t, "no such customer", headers["dead-letter-description"])
	assert.Equal(t, string(q.addr), headers["dead-letter-source"])
	assert.Equal(t, int64(2), headers["dead-letter-attempts"])
	assert.WithinDuration(t, time.Now(), headers["dead-letter-time"].(time.Time), patience)
	assert.Equal(t, "kept", letter.Annotations["x-opt-suite"])
	want := *m.Properties
	want.UserID, want.AbsoluteExpiryTime = nil, nil
	requireSameProperties(t, &want, letter.Properties)
	assert.Empty(t, q.rest(t))
	assert.Empty(t, seen)
}

// shutdownEndsHolds loses nothing: the peer has everything again.
func shutdownEndsHolds(t *testing.T, p suitePeer) {
	const n = 20
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, numbered(n)...)
	b := brokerAt(p)
	sub := b.Subscribe(q.addr, func(context.Context, *amqpflow.Delivery) error {
		return amqpflow.RetryAfter(9*time.Second, errors.New("later"))
	})
	mustConnect(t, b)
	require.Eventually(t, func() bool { return sub.Stats().Retrying == n }, patience, time.Millisecond)
	started := time.Now()
	shutDown(t, b)
	assert.Less(t, time.Since(started), 5*time.Second)
	assert.Equal(t, uint64(n), sub.Stats().Modified)
	assert.ElementsMatch(t, numbered(n), bodiesOf(q.take(t, n)))
	assert.Empty(t, q.rest(t))
}

// consumerTimeoutTakesTheDeliveryBack is RabbitMQ's alone.
func consumerTimeoutTakesTheDeliveryBack(t *testing.T, p suitePeer) {
	if _, ok := p.(*rabbitPeer); !ok {
		t.Skip("takes nothing back by the clock")
	}
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, "slow")
	b := brokerAt(p)
	causes, answers, later := make(chan error, 1), make(chan error, 1), make(chan string, 2)
	calls := 0
	b.Subscribe(q.addr, func(ctx context.Context, d *amqpflow.Delivery) error {
		if calls++; calls > 1 {
			later <- string(d.Data())
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		answers <- d.Accept(ctx)
		return nil
	}, &amqpflow.SubscribeOptions{LinkProperties: map[string]any{"rabbitmq:consumer-timeout": uint32(1000)}})
	mustConnect(t, b)
	require.ErrorIs(t, await(t, 3*patience, causes), amqpflow.ErrLinkLost, "its check may run once a minute only")
	require.ErrorIs(t, await(t, patience, answers), amqpflow.ErrLinkLost)
	assert.Equal(t, "slow", await(t, patience, later), "the queue delivers it again")
	q.putBodies(t, "next")
	assert.Equal(t, "next", await(t, patience, later), "and goes on")
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}
