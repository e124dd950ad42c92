package amqpflow_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// otherFieldsKeepTheDefaultPriority publishes with fields of the header set
// that are not the priority, in the middle of what others have stored with the
// default: it keeps its place.
//
// Spec: 3.2.1.
func otherFieldsKeepTheDefaultPriority(t *testing.T, p suitePeer) {
	if _, fake := p.(*fakePeer); fake {
		p = openFakeAs(t, amqpflow.DialectArtemis) // the generic one delivers as it comes
	}
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)
	publish := func(body string, o *amqpflow.PublishOptions) {
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, body, o))
	}
	before, after := numbered(20)[:10], numbered(20)[10:]
	publish("lowest", &amqpflow.PublishOptions{Priority: new(uint8(0))})
	q.putBodies(t, before...)
	publish("with a TTL", &amqpflow.PublishOptions{TTL: time.Hour})
	publish("not durable", &amqpflow.PublishOptions{NonDurable: true})
	publish("plain", nil)
	q.putBodies(t, after...)
	publish("highest", &amqpflow.PublishOptions{Priority: new(uint8(9))})
	shutDown(t, b)

	want := slices.Concat([]string{"highest"}, before, []string{"with a TTL", "not durable", "plain"}, after, []string{"lowest"})
	got := q.take(t, len(want))
	assert.Equal(t, want, bodiesOf(got))
	for i, m := range got {
		require.NotNil(t, m.Header)
		assert.Equal(t, want[i] != "not durable", m.Header.Durable, want[i])
		assert.Zero(t, countOf(m))
	}
}
