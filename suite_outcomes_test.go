package amqpflow_test

import (
	"context"
	"errors"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// attemptsAt subscribes to q with a handler that answers the first call with
// results[0] and so on, every later one with nil. It returns the attempts.
func attemptsAt(b *amqpflow.Broker, q *testQueue, results ...error) <-chan int {
	seen := make(chan int, 100)
	calls := 0
	b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
		seen <- d.Attempt()
		if calls++; calls <= len(results) {
			return results[calls-1]
		}
		return nil
	})
	return seen
}

func acceptedIsGone(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "returned nil", "accepted by hand")
	b := brokerAt(p)
	settled := make(chan error, 2)
	b.Subscribe(q.addr, func(ctx context.Context, d *amqpflow.Delivery) error {
		if string(d.Data()) == "returned nil" {
			settled <- nil
			return nil
		}
		settled <- d.Accept(ctx)
		return errors.New("what is settled stays settled")
	})
	mustConnect(t, b)
	require.NoError(t, await(t, patience, settled))
	require.NoError(t, await(t, patience, settled))
	shutDown(t, b)

	assert.Empty(t, q.rest(t))
	p.deadLetters(t, q, 0)
}

func retriedComesBackWithAHigherCount(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "x")
	b := brokerAt(p)
	seen := attemptsAt(b, q, errors.New("any error is a retry"), amqpflow.Retry(errors.New("so is this")))
	mustConnect(t, b)
	for attempt := 1; attempt <= 3; attempt++ {
		require.Equal(t, attempt, await(t, patience, seen))
	}
	shutDown(t, b)

	assert.Empty(t, q.rest(t), "the third attempt was accepted")
	p.deadLetters(t, q, 0)
}

func retriedTooOftenIsDeadLettered(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "poison")
	b := brokerAt(p)
	failed := errors.New("fails each time")
	seen := attemptsAt(b, q, failed, failed, failed, failed)
	mustConnect(t, b)
	for attempt := 1; attempt <= suiteAttempts; attempt++ {
		require.Equal(t, attempt, await(t, patience, seen))
	}

	assert.Equal(t, []string{"poison"}, bodiesOf(p.deadLetters(t, q, 1)))
	shutDown(t, b)
	assert.Empty(t, seen, "there was no fourth attempt")
	assert.Empty(t, q.rest(t))
}

func rejectedIsDeadLettered(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "invalid")
	b := brokerAt(p)
	seen := attemptsAt(b, q, &amqpflow.OutcomeError{
		Outcome: amqpflow.Rejected, Condition: "suite:invalid", Description: "no such customer",
	})
	mustConnect(t, b)
	require.Equal(t, 1, await(t, patience, seen))

	assert.Equal(t, []string{"invalid"}, bodiesOf(p.deadLetters(t, q, 1)))
	shutDown(t, b)
	assert.Empty(t, seen)
	assert.Empty(t, q.rest(t))
	if fake, ok := p.(*fakePeer); ok {
		settlements := fake.server.Settlements(q.addr)
		require.Len(t, settlements, 1)
		assert.Equal(t, &amqp.Error{Condition: "suite:invalid", Description: "no such customer"}, settlements[0].Error)
	}
}

func releasedComesBackWithTheSameCount(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.putBodies(t, "x")
	b := brokerAt(p)
	seen := attemptsAt(b, q, amqpflow.Release(), amqpflow.Release(), amqpflow.Release(), amqpflow.Release())
	mustConnect(t, b)
	for range suiteAttempts + 2 {
		require.Equal(t, 1, await(t, patience, seen), "a release is no attempt")
	}
	shutDown(t, b)

	assert.Empty(t, q.rest(t), "the fifth was accepted")
	p.deadLetters(t, q, 0)
}

func failFastLeavesTheDeliveryToThePeer(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, "kept")
	b := brokerAt(p)
	cause := errors.New("the disk is full")
	attemptsAt(b, q, amqpflow.FailFast(cause))

	assert.ErrorIs(t, b.Run(patient(t)), cause)

	assert.ErrorIs(t, b.Err(), cause)
	await(t, patience, b.Done())
	assert.Equal(t, []string{"kept"}, bodiesOf(q.take(t, 1)))
	assert.Empty(t, q.rest(t))
}
