package amqpflow_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// distantConn is a connection on which everything from the peer takes longer.
type distantConn struct {
	net.Conn
	delay *atomic.Int64
}

func (c *distantConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(time.Duration(c.delay.Load()))
	return n, err
}

// givenUpAttachesLeaveNothing subscribes and publishes with less patience than
// the peer's answers take, far more often than it allows sessions.
func givenUpAttachesLeaveNothing(t *testing.T, p suitePeer) {
	const rounds, impatience = 80, 10 * time.Millisecond
	q := p.newQueue(t, testQueueOptions{})
	targets := []*testQueue{p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})}
	var delay atomic.Int64
	far := tap{wrap: func(nc net.Conn) net.Conn { return &distantConn{Conn: nc, delay: &delay} }}
	b := brokerAt(p, &amqpflow.Options{DialContext: far.dial})
	mustConnect(t, b)
	delay.Store(int64(5 * impatience))
	impatient := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), impatience)
		defer cancel()
		return f(ctx)
	}
	for i := range rounds {
		sub := b.Subscribe(q.addr, accepting)
		require.ErrorIs(t, impatient(sub.Attached), context.DeadlineExceeded)
		_ = impatient(sub.Close) // it may be in time
		err := impatient(func(ctx context.Context) error {
			return b.Publisher().Publish(ctx, targets[i*len(targets)/rounds].addr, "x")
		})
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	}
	delay.Store(0)
	last := b.Subscribe(q.addr, accepting)
	require.NoError(t, last.Attached(patient(t)))
	for _, target := range targets {
		require.NoError(t, b.Publisher().Publish(patient(t), target.addr, "x"))
	}
	// The publishers' and the last subscription's.
	far.until(t, func(frames []tapFrame) bool { return limitsOf(frames).sessions == 2 })
	l := limitsOf(far.all(t))
	t.Logf("%d sessions begun, %d at once", l.begun, l.mostSessions)
	assert.Equal(t, 1+len(targets), l.links)
	assert.LessOrEqual(t, l.mostSessions, 64, "RabbitMQ's limit, however slowly it answers")
	assert.Zero(t, l.closes)
	names := map[string]bool{}
	for _, a := range far.sentAttaches(t) {
		assert.False(t, names[a.Name], "no link name is used twice")
		names[a.Name] = true
	}
	require.NoError(t, b.Ready())
}
