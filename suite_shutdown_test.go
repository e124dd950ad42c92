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
	"github.com/amqpflow/amqpflow/internal/wire"
)

// numbered are n bodies.
func numbered(n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	return bodies
}

func shutdownReleasesWhatWasNotBegun(t *testing.T, p suitePeer) {
	const n = 20
	q := p.newQueue(t, testQueueOptions{})
	bodies := numbered(n)
	q.putBodies(t, bodies...)
	draining := make(chan struct{})
	b := brokerAt(p, &amqpflow.Options{Observer: &amqpflow.Observer{
		State: func(_ *amqpflow.Subscription, s amqpflow.State, _ error) {
			if s == amqpflow.Draining {
				close(draining)
			}
		},
	}})
	begun := make(chan string, n)
	sub := amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		begun <- m.Body
		<-draining
		return nil
	})
	mustConnect(t, b)
	require.Equal(t, bodies[0], await(t, patience, begun))
	require.Eventually(t, func() bool { return sub.Stats().Held == n-1 }, patience, time.Millisecond)

	shutDown(t, b)

	assert.Empty(t, begun, "nothing begins once the subscription drains")
	assert.Equal(t, amqpflow.Stats{Received: n, Accepted: 1, Released: n - 1}, sub.Stats())
	back := q.take(t, n-1)
	assert.ElementsMatch(t, bodies[1:], bodiesOf(back))
	for _, m := range back {
		assert.Zero(t, countOf(m), "no attempt was made")
	}
	assert.Empty(t, q.rest(t))
}

func settledBeforeShutdownStaysSettled(t *testing.T, p suitePeer) {
	const n = 1_000
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, numbered(n)...)
	b := brokerAt(p)
	var count atomic.Int64
	handled := make(chan struct{})
	amqpflow.Subscribe(b, q.addr, func(context.Context, *amqpflow.Message[string]) error {
		if count.Add(1) == n {
			close(handled)
		}
		return nil
	})
	mustConnect(t, b)
	await(t, patience, handled)

	shutDown(t, b)

	assert.Empty(t, bodiesOf(q.rest(t)), "none comes back")
	assert.Equal(t, int64(n), count.Load())
}

func shutdownGoesFromTheInsideOut(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	handled := make(chan string, 1)
	amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		handled <- m.Body
		return nil
	})
	mustConnect(t, b)
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x"))
	await(t, patience, handled)
	shutDown(t, b)

	var receiver, sender uint16 // the channels of the two sessions
	var order []string
	name := func(channel uint16, link bool) string {
		kind := map[uint16]string{receiver: "receiver", sender: "sender"}[channel]
		if link {
			return "detach " + kind
		}
		return "end " + kind
	}
	frames := wiretap.all(t)
	probes := probesIn(frames)
	for _, f := range frames {
		if !f.sent || probes[f.channel] {
			continue
		}
		switch f.code {
		case wire.CodeAttach:
			if f.body.(*wire.Attach).Role == wire.RoleReceiver {
				receiver = f.channel
			} else {
				sender = f.channel
			}
		case wire.CodeDetach:
			order = append(order, name(f.channel, true))
		case wire.CodeEnd:
			order = append(order, name(f.channel, false))
		case wire.CodeClose:
			order = append(order, "close")
		case wire.CodeDisposition:
			order = append(order, "settle")
		}
	}
	require.NotEqual(t, receiver, sender)
	assert.Equal(t, []string{"settle", "detach receiver", "end receiver", "detach sender", "end sender", "close"}, order)
}

// idleShutdownIsPrompt ends sessions that have nothing to do any more. Left to
// itself, Artemis answers the last END up to 2 s late.
func idleShutdownIsPrompt(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	var worst time.Duration
	canary := newCanary()
	for range 5 { // by luck one is prompt whatever happens
		q.putBodies(t, "x")
		b := brokerAt(p)
		handled := deliveriesOf(t, b, q)
		mustConnect(t, b)
		await(t, patience, handled)
		started := time.Now()
		shutDown(t, b)
		worst = max(worst, time.Since(started))
	}
	requireBound(t, "the slowest Shutdown", worst, 300*time.Millisecond, canary)
}

// shutdownKeepsItsBound has a handler that does not return until the test
// ends.
func shutdownKeepsItsBound(t *testing.T, p suitePeer) {
	const bound = 300 * time.Millisecond
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, numbered(3)...)
	hangs, cause, ended := make(chan struct{}), make(chan error, 1), make(chan struct{})
	b := brokerAt(p)
	begun := make(chan struct{}, 3)
	b.Subscribe(q.addr, func(ctx context.Context, _ *amqpflow.Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-hangs
		close(ended)
		return nil
	})
	require.NoError(t, b.Connect(patient(t)))
	await(t, patience, begun)

	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	returned := make(chan error, 1)
	var wg sync.WaitGroup
	canary, started := newCanary(), time.Now()
	wg.Go(func() { returned <- b.Shutdown(ctx) })
	err := await(t, patience, returned)
	requireBound(t, "Shutdown", time.Since(started), bound, canary)

	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, await(t, patience, cause), amqpflow.ErrShutdown)
	assert.Same(t, err, b.Shutdown(patient(t)), "a second Shutdown returns the same")
	assert.ElementsMatch(t, numbered(3), bodiesOf(q.take(t, 3)), "the peer has it again")
	close(hangs)
	await(t, patience, ended)
}
