package amqpflow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// givenUpLargePublishesStayWhole publishes messages of many frames that are
// given up before, in the middle of and after their frames, among small ones
// to the same addresses. What is stored is whole, and was answered truly.
func givenUpLargePublishesStayWhole(t *testing.T, p suitePeer) {
	const publishers, each, small, large = 8, 8, 100, 2 << 20
	queues := []*testQueue{p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})}
	var midway atomic.Pointer[func()]
	wiretap := tap{wrap: func(nc net.Conn) net.Conn { return &midwayConn{Conn: nc, call: &midway} }}
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	mustConnect(t, b)
	var mu sync.Mutex
	answers := map[string]error{} // by the mark of the body
	publish := func(ctx context.Context, i int, name string, size int) error {
		err := b.Publisher().Publish(ctx, queues[i%len(queues)].addr, markedBody(name, size))
		mu.Lock()
		defer mu.Unlock()
		answers[name] = err
		return err
	}
	for i := range queues {
		require.NoError(t, publish(patient(t), i, fmt.Sprint("first ", i), small))
		ctx, cancel := context.WithCancel(patient(t))
		giveUp := func() { cancel() }
		midway.Store(&giveUp)
		err := publish(ctx, i, fmt.Sprint("given up ", i), large)
		require.ErrorIs(t, err, amqpflow.ErrUncertain)
		require.ErrorIs(t, err, context.Canceled)
	}
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for j := range each {
				name := fmt.Sprintf("%d-%d", i, j)
				if j%2 == 1 {
					assert.NoError(t, publish(patient(t), i, name, small))
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5*i+j)*time.Millisecond)
				_ = publish(ctx, i, name, large) // see requireTrueAnswers
				cancel()
			}
		})
	}
	wg.Wait()
	stored := map[string]bool{}
	for _, q := range queues {
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "last"))
		bodies := bodiesOf(q.restWith(t, "last"))
		for _, body := range bodies[:len(bodies)-1] {
			name := markOf(t, body, small, large)
			require.False(t, stored[name], "%s is there once", name)
			stored[name] = true
		}
	}
	requireTrueAnswers(t, answers, stored)
	assert.Len(t, senderAttaches(t, &wiretap), len(queues), "no link was lost")
}

// requireTrueAnswers holds what publishes were told against what is stored.
func requireTrueAnswers(t *testing.T, answers map[string]error, stored map[string]bool) {
	t.Helper()
	uncertain := 0
	for name, err := range answers {
		switch {
		case err == nil:
			require.True(t, stored[name], "%s was confirmed", name)
		case errors.Is(err, amqpflow.ErrUncertain):
			uncertain++
		default:
			require.ErrorIs(t, err, amqpflow.ErrNotSent)
			require.False(t, stored[name], "%s was not sent", name)
		}
	}
	for name := range stored {
		require.Contains(t, answers, name)
	}
	t.Logf("%d publishes, %d uncertain, %d stored", len(answers), uncertain, len(stored))
}

// markedBody says whose it is from its first byte to its last.
func markedBody(name string, size int) string {
	line := name + "\n"
	return string(bytes.Repeat([]byte(line), size/len(line)+1)[:size])
}

// markOf is the name in a body, which must be whole and of one of the sizes.
func markOf(t *testing.T, body string, sizes ...int) string {
	t.Helper()
	name, _, _ := bytes.Cut([]byte(body), []byte("\n"))
	require.Contains(t, sizes, len(body), "the size of %s", name)
	if body != markedBody(string(name), len(body)) {
		require.Fail(t, "a mixed body", "%s is mixed with another", name)
	}
	return string(name)
}

// midwayConn is a connection that calls a function, once, before it writes a
// kilobyte or more at once: a large message is under way then, and the peer
// cannot have answered.
type midwayConn struct {
	net.Conn
	call *atomic.Pointer[func()]
}

func (c *midwayConn) Write(b []byte) (int, error) {
	if len(b) >= 1<<10 {
		if f := c.call.Swap(nil); f != nil {
			(*f)()
		}
	}
	return c.Conn.Write(b)
}
