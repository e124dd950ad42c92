package amqpflow_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// What a peer will not have, and what harm it must not do to the rest.

// fullQueueRejectsWithItsReason fills a queue, empties it, and publishes over
// the same link.
func fullQueueRejectsWithItsReason(t *testing.T, p suitePeer) {
	const enough = 200 // brokers count with some delay
	q := p.newQueue(t, testQueueOptions{small: true})
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	mustConnect(t, b)
	var stored []string
	var err error
	for i := 0; err == nil && i < enough; i++ {
		body := fmt.Sprint(i)
		if err = b.Publisher().Publish(patient(t), q.addr, body); err == nil {
			stored = append(stored, body)
		}
	}

	var refused *amqpflow.PublishError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, amqpflow.Rejected, refused.Outcome)
	assert.Equal(t, q.addr, refused.Address)
	assert.Equal(t, amqp.ErrCondResourceLimitExceeded, refused.Condition)
	assert.NotErrorIs(t, err, amqpflow.ErrUncertain)
	assert.NotEmpty(t, refused.Description)
	if _, rabbit := p.(*rabbitPeer); rabbit {
		assert.Equal(t, q.name, refused.Info["queue"])
		assert.Equal(t, "maxlen", refused.Info["reason"])
	}
	assert.Equal(t, stored, bodiesOf(q.take(t, len(stored))), "what was confirmed, and nothing else")

	require.Eventually(t, func() bool {
		return b.Publisher().Publish(patient(t), q.addr, "there is room") == nil
	}, patience, 5*time.Millisecond)
	assert.Len(t, senderAttaches(t, &wiretap), 1, "over the same link")
	assert.Equal(t, []string{"there is room"}, bodiesOf(q.rest(t)))
}

// senderAttaches are the attaches of sending links that we wrote.
func senderAttaches(t *testing.T, tp *tap) []*wire.Attach {
	t.Helper()
	return slices.DeleteFunc(tp.sentAttaches(t), func(a *wire.Attach) bool { return a.Role != wire.RoleSender })
}

// transfersSent is how many transfer frames we wrote.
func transfersSent(t *testing.T, tp *tap) (n int) {
	t.Helper()
	for _, f := range tp.all(t) {
		if f.sent && f.code == wire.CodeTransfer {
			n++
		}
	}
	return n
}

// oversizedPublishHarmsNoOther publishes one message above the peer's limit
// among a hundred. It needs a peer that announces one.
func oversizedPublishHarmsNoOther(t *testing.T, p suitePeer) {
	const n, large, limit = 100, 50, 16 << 20
	switch p.(type) {
	case *artemisPeer:
		t.Skip("announces no limit")
	case *fakePeer:
		p = openFakeAs(t, amqpflow.DialectRabbitMQ)
	}
	q := p.newQueue(t, testQueueOptions{})
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	mustConnect(t, b)
	tooLarge := make([]byte, limit+1)
	var wg sync.WaitGroup
	answers := make([]error, n)
	for i := range n {
		wg.Go(func() {
			body := fmt.Append(nil, i)
			if i == large {
				body = tooLarge
			}
			if i%2 == 0 {
				answers[i] = b.Publisher().Publish(patient(t), q.addr, body)
				return
			}
			r, err := b.Publisher().Send(patient(t), q.addr, body)
			if err == nil {
				err = r.Wait(patient(t))
			}
			answers[i] = err
		})
	}
	wg.Wait()
	want := make([]string, 0, n)
	for i, err := range answers {
		if i != large {
			require.NoError(t, err, "message %d", i)
			want = append(want, fmt.Sprint(i))
		}
	}
	var refused *amqpflow.PublishError
	require.ErrorAs(t, answers[large], &refused)
	assert.Equal(t, amqp.ErrCondMessageSizeExceeded, refused.Condition)
	assert.ErrorIs(t, answers[large], amqpflow.ErrNotSent)
	assert.Equal(t, n-1, transfersSent(t, &wiretap), "nothing of it was sent")
	assert.Len(t, senderAttaches(t, &wiretap), 1, "the link lives")
	assert.ElementsMatch(t, want, bodiesOf(q.take(t, n-1)))
	assert.Empty(t, q.rest(t))
}

// reservedAnnotationKeysHarmNoLink publishes keys for which RabbitMQ ends the
// session, and keys that everybody may use.
//
// Spec: 3.2.10.
func reservedAnnotationKeysHarmNoLink(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	deliveries := deliveriesOf(t, b, q)
	mustConnect(t, b)
	for _, key := range []any{"foo", uint64(1), int64(1)} {
		for _, v := range []any{"x", &amqp.Message{Value: "x", Annotations: amqp.Annotations{key: "v"}}} {
			err := b.Publisher().Publish(patient(t), q.addr, v, &amqpflow.PublishOptions{Annotations: amqp.Annotations{key: "v"}})
			var refused *amqpflow.EncodeError
			require.ErrorAs(t, err, &refused, "%v in a %T", key, v)
			assert.ErrorContains(t, err, fmt.Sprint(key))
		}
	}
	assert.Zero(t, transfersSent(t, &wiretap), "it is refused here")

	for _, key := range []string{"x-foo", "x-opt-foo"} {
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x",
			&amqpflow.PublishOptions{Annotations: amqp.Annotations{key: "v"}}), key)
		d := await(t, patience, deliveries)
		assert.Equal(t, "v", d.Annotation(key))
		m, err := d.AMQP()
		require.NoError(t, err)
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, m), "forwarded with what the peer has added")
		assert.Equal(t, "v", await(t, patience, deliveries).Annotation(key))
	}
	l := limitsOf(wiretap.all(t))
	assert.Zero(t, l.closes)
	assert.Len(t, senderAttaches(t, &wiretap), 1)
	require.NoError(t, b.Ready())
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}
