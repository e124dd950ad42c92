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

// streamAtShutdownYieldsWhatItHolds has a reader that is in the middle when
// Shutdown is called and settles the rest in time: nothing is released.
func streamAtShutdownYieldsWhatItHolds(t *testing.T, p suitePeer) {
	const n = 20
	q := p.newQueue(t, testQueueOptions{})
	bodies := numbered(n)
	q.putBodies(t, bodies...)
	draining := make(chan struct{})
	b := brokerAt(p, &amqpflow.Options{Observer: &amqpflow.Observer{State: func(_ *amqpflow.Subscription, s amqpflow.State, _ error) {
		if s == amqpflow.Draining {
			close(draining)
		}
	}}})
	s := b.Stream(q.addr)
	mustConnect(t, b)
	require.Eventually(t, func() bool { return s.Stats().Held == n }, patience, time.Millisecond)

	ended := make(chan error, 1)
	var got []string
	for d, err := range s.Deliveries(patient(t)) {
		require.NoError(t, err)
		got = append(got, string(d.Data()))
		if len(got) == 3 {
			go func() { ended <- b.Shutdown(patient(t)) }()
			await(t, patience, draining)
		}
		require.NoError(t, d.Accept(t.Context()), "the link carries settlements to the end")
	}
	require.NoError(t, await(t, patience, ended))
	assert.Equal(t, bodies, got)
	assert.Equal(t, amqpflow.Stats{Received: n, Accepted: n}, s.Stats())
	assert.NoError(t, s.Err())
	assert.Empty(t, q.rest(t))
}

// streamPastItsBoundCannotSettle has a reader that does not go on before
// Shutdown has given it up.
func streamPastItsBoundCannotSettle(t *testing.T, p suitePeer) {
	const n, settled = 10, 3
	q := p.newQueue(t, testQueueOptions{})
	bodies := numbered(n)
	q.putBodies(t, bodies...)
	b := brokerAt(p)
	s := b.Stream(q.addr)
	require.NoError(t, b.Connect(patient(t)))
	require.Eventually(t, func() bool { return s.Stats().Held == n }, patience, time.Millisecond)

	var got []string
	for d, err := range s.Deliveries(patient(t)) {
		require.NoError(t, err)
		got = append(got, string(d.Data()))
		if len(got) == settled+1 {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			require.ErrorIs(t, b.Shutdown(ctx), context.DeadlineExceeded)
			cancel()
		}
		err = d.Accept(t.Context())
		if len(got) <= settled {
			require.NoError(t, err)
			continue
		}
		assert.True(t, errors.Is(err, amqpflow.ErrLinkLost) || errors.Is(err, amqpflow.ErrShutdown), "%v", err)
		assert.NotErrorIs(t, err, amqpflow.ErrSettled)
	}
	assert.Equal(t, bodies, got, "the rest is yielded all the same")
	assert.ElementsMatch(t, bodies[settled:], bodiesOf(q.take(t, n-settled)), "the peer has the rest again")
	assert.Empty(t, q.rest(t))
}

// messagesYieldsWhatCannotBeDecoded yields it with its error, settled.
func messagesYieldsWhatCannotBeDecoded(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	for _, body := range []string{`{"n":1}`, `{"n":`, `{"n":2}`} {
		m := textMessage(body)
		m.Properties = &amqp.MessageProperties{ContentType: new("application/json")}
		q.put(t, m)
	}
	b := brokerAt(p)
	s := b.Stream(q.addr)
	mustConnect(t, b)
	read := 0
	for m, err := range amqpflow.Messages[part](patient(t), s) {
		read++
		require.NotNil(t, m)
		if read != 2 {
			require.NoError(t, err)
			assert.Equal(t, (read+1)/2, m.Body.N)
			require.NoError(t, m.Accept(t.Context()))
		} else {
			var bad *amqpflow.DecodeError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, q.addr, bad.Address)
			assert.Zero(t, m.Body)
			assert.Equal(t, `{"n":`, string(m.Data()))
			require.ErrorIs(t, m.Accept(t.Context()), amqpflow.ErrSettled)
		}
		if read == 3 {
			break
		}
	}
	assert.Equal(t, amqpflow.Attached, s.State(), "leaving the loop keeps the link")
	shutDown(t, b)
	assert.Equal(t, amqpflow.Stats{Received: 3, Accepted: 2, Rejected: 1}, s.Stats())
	assert.Equal(t, []string{`{"n":`}, bodiesOf(p.deadLetters(t, q, 1)))
	assert.Empty(t, q.rest(t))
}
