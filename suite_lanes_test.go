package amqpflow_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// keyed is a message "key/number" whose group-id is its key.
func keyed(key string, number int) *amqp.Message {
	m := textMessage(fmt.Sprintf("%s/%d", key, number))
	m.Properties = &amqp.MessageProperties{GroupID: &key}
	return m
}

// interleaved are perKey messages of each key, one of every key in turn.
func interleaved(keys, perKey int) (ms []*amqp.Message) {
	for i := range perKey {
		for k := range keys {
			ms = append(ms, keyed(fmt.Sprint("key", k), i))
		}
	}
	return ms
}

// assertInOrder wants each key to have all of its messages, in order.
func assertInOrder(t *testing.T, handled map[string][]string, keys, perKey int) {
	t.Helper()
	for k := range keys {
		key := fmt.Sprint("key", k)
		want := make([]string, perKey)
		for i := range want {
			want[i] = fmt.Sprintf("%s/%d", key, i)
		}
		assert.Equal(t, want, handled[key])
	}
}

// byGroup makes a lane for each group-id.
func byGroup(d *amqpflow.Delivery) string { return d.GroupID() }

// oneLaneKeepsItsOrder has more keys than lanes, and handlers that take
// unequally long.
func oneLaneKeepsItsOrder(t *testing.T, p suitePeer) {
	const keys, perKey, lanes = 24, 40, 8
	q := p.newQueue(t, testQueueOptions{})
	q.put(t, interleaved(keys, perKey)...)

	var mu sync.Mutex // guards the next four
	handled := map[string][]string{}
	running := map[string]bool{}
	most, total := 0, 0
	done := make(chan struct{})
	b := brokerAt(p)
	sub := amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		key := m.GroupID()
		mu.Lock()
		assert.False(t, running[key], "two of one key at once")
		running[key] = true
		most = max(most, len(running))
		mu.Unlock()
		if strings.HasSuffix(key, "7") {
			<-time.After(time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		delete(running, key)
		handled[key] = append(handled[key], m.Body)
		if total++; total == keys*perKey {
			close(done)
		}
		return nil
	}, &amqpflow.SubscribeOptions{Workers: lanes, PartitionBy: byGroup})
	mustConnect(t, b)
	await(t, patience, done)
	shutDown(t, b)

	assertInOrder(t, handled, keys, perKey)
	assert.Greater(t, most, 1, "lanes run side by side")
	assert.LessOrEqual(t, most, lanes)
	assert.Equal(t, uint64(keys*perKey), sub.Stats().Accepted)
	assert.Empty(t, q.rest(t))
}

// blockedLaneLeavesTheOthersRunning blocks one key for as long as the others
// have anything to do. Which keys share its lane is known by the context,
// which belongs to a worker.
func blockedLaneLeavesTheOthersRunning(t *testing.T, p suitePeer) {
	const keys, perKey, lanes, credit = 40, 20, 16, 256
	q := p.newQueue(t, testQueueOptions{})
	var mu sync.Mutex // guards the next two
	lane := map[string]context.Context{}
	handled := map[string]int{}
	unblock, blocked := make(chan struct{}), make(chan struct{})
	bodies := make(chan string, keys*perKey)
	b := brokerAt(p)
	sub := amqpflow.Subscribe(b, q.addr, func(ctx context.Context, m *amqpflow.Message[string]) error {
		if m.Body == "key0/1" {
			close(blocked)
			<-unblock
		}
		mu.Lock()
		defer mu.Unlock()
		lane[m.GroupID()] = ctx
		handled[m.GroupID()]++
		bodies <- m.Body
		return nil
	}, &amqpflow.SubscribeOptions{Workers: lanes, PartitionBy: byGroup, Credit: credit})
	mustConnect(t, b)

	var first []*amqp.Message
	for k := range keys {
		first = append(first, keyed(fmt.Sprint("key", k), 0))
	}
	q.put(t, first...)
	for range keys {
		await(t, patience, bodies)
	}
	free := map[string]bool{}
	waiting := 0 // messages that wait behind the blocked one
	for key, ctx := range lane {
		if ctx != lane["key0"] {
			free[key] = true
		} else {
			waiting += perKey - 1
		}
	}
	require.NotEmpty(t, free)
	require.Less(t, waiting, credit, "the window has room for what is blocked")

	var ms []*amqp.Message
	for i := 1; i < perKey; i++ {
		for k := range keys {
			ms = append(ms, keyed(fmt.Sprint("key", k), i))
		}
	}
	q.put(t, ms...)
	await(t, patience, blocked)
	for range len(free) * (perKey - 1) {
		body := await(t, patience, bodies)
		assert.True(t, free[strings.Split(body, "/")[0]], "%s went past the one that blocks its lane", body)
	}
	require.Eventually(t, func() bool { return sub.Stats().Held == waiting-1 }, patience, 5*time.Millisecond,
		"all that is blocked waits here")
	close(unblock)
	for range waiting {
		await(t, patience, bodies)
	}
	mu.Lock()
	for k := range keys {
		assert.Equal(t, perKey, handled[fmt.Sprint("key", k)])
	}
	mu.Unlock()
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}
