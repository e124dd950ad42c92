package amqpflow_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// limits follows the sessions and links that we have on one connection.
type limits struct {
	sessions, links         int
	mostSessions, mostLinks int
	begun, attached         int
	closes                  int // CLOSE frames of either side
	handleMax               uint32
}

// limitsOf reads a connection's frames. A session that ends takes its links
// with it.
func limitsOf(frames []tapFrame) limits {
	var l limits
	open := map[uint16]map[uint32]bool{} // links by our channel
	for _, f := range frames {
		if f.code == wire.CodeClose {
			l.closes++
		}
		if !f.sent {
			if b, ok := f.body.(*wire.Begin); ok {
				l.handleMax = b.HandleMax
			}
			continue
		}
		switch body := f.body.(type) {
		case *wire.Begin:
			open[f.channel] = map[uint32]bool{}
			l.begun++
		case *wire.End:
			delete(open, f.channel)
		case *wire.Attach:
			open[f.channel][body.Handle] = true
			l.attached++
		case *wire.Detach:
			delete(open[f.channel], body.Handle)
		}
		l.sessions, l.links = len(open), 0
		for _, links := range open {
			l.links += len(links)
		}
		l.mostSessions, l.mostLinks = max(l.mostSessions, l.sessions), max(l.mostLinks, l.links)
	}
	return l
}

// hundredSubscriptionsStayWithinTheLimits has a hundred subscriptions, each of
// which must get a message: it holds the one that its window has room for.
func hundredSubscriptionsStayWithinTheLimits(t *testing.T, p suitePeer) {
	const queues, perQueue = 5, 20
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	unblock, begun := make(chan struct{}), make(chan int, queues*perQueue)
	qs := make([]*testQueue, queues)
	subs := make([]*amqpflow.Subscription, queues*perQueue)
	for i := range qs {
		qs[i] = p.newQueue(t, testQueueOptions{})
	}
	for i := range subs {
		subs[i] = b.Subscribe(qs[i%queues].addr, func(context.Context, *amqpflow.Delivery) error {
			begun <- i
			<-unblock
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 1})
	}
	mustConnect(t, b)
	require.NoError(t, b.Ready())
	for range perQueue {
		for _, q := range qs {
			require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x"))
		}
	}
	got := make([]int, len(subs))
	for i := range got {
		got[i] = await(t, patience, begun)
	}
	slices.Sort(got)
	for i := range got {
		require.Equal(t, i, got[i], "each subscription has one")
	}
	close(unblock)
	l := limitsOf(wiretap.all(t))
	t.Logf("%d sessions and %d links at most", l.mostSessions, l.mostLinks)
	assert.Zero(t, l.closes)
	if _, artemis := p.(*artemisPeer); !artemis {
		assert.LessOrEqual(t, l.mostSessions, 64)
	}
	shutDown(t, b)
	for _, s := range subs {
		assert.Equal(t, uint64(1), s.Stats().Accepted)
	}
	for _, q := range qs {
		assert.Empty(t, q.rest(t))
	}
}

// linkAboveTheLimitIsAnAttachError puts everything on one session.
func linkAboveTheLimitIsAnAttachError(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial, MaxSessions: 1})
	mustConnect(t, b)
	limit := int(limitsOf(wiretap.all(t)).handleMax) + 1
	if limit > 1000 {
		t.Skipf("the peer takes %d links a session", limit)
	}
	var handled atomic.Int64
	subs := make([]*amqpflow.Subscription, limit)
	for i := range subs {
		subs[i] = b.Subscribe(q.addr, func(context.Context, *amqpflow.Delivery) error {
			handled.Add(1)
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 1})
	}
	for i, s := range subs {
		require.NoError(t, s.Attached(patient(t)), "link %d", i+1)
	}
	for range 2 {
		over := b.Subscribe(q.addr, accepting)
		var failed *amqpflow.AttachError
		require.ErrorAs(t, over.Attached(patient(t)), &failed)
		assert.Equal(t, q.addr, failed.Address)
		require.NoError(t, over.Close(patient(t)))
		var refused *amqpflow.AttachError
		err := b.Publisher().Publish(patient(t), q.addr, "x")
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
	}
	require.NoError(t, b.Err())
	assert.Zero(t, limitsOf(wiretap.all(t)).closes, "the connection lives")

	require.NoError(t, subs[0].Close(patient(t)))
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x"), "there is room again")
	require.Eventually(t, func() bool { return handled.Load() == 1 }, patience, 5*time.Millisecond)
	shutDown(t, b)
	assert.Equal(t, limit, limitsOf(wiretap.all(t)).mostLinks)
}

// subscribeAndCloseLeavesNothing subscribes and closes on a broker that
// handles messages meanwhile.
func subscribeAndCloseLeavesNothing(t *testing.T, p suitePeer) {
	const rounds, warm, sideBySide = stormSize / 10, 10, 4
	q, busy := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	var handled atomic.Int64
	b.Subscribe(busy.addr, func(context.Context, *amqpflow.Delivery) error {
		handled.Add(1)
		return nil
	})
	mustConnect(t, b)
	require.NoError(t, b.Publisher().Publish(patient(t), busy.addr, "x"))
	round := func() {
		var wg sync.WaitGroup
		for range sideBySide {
			wg.Go(func() {
				s := b.Subscribe(q.addr, accepting)
				if assert.NoError(t, s.Attached(patient(t))) {
					assert.NoError(t, s.Close(patient(t)))
				}
			})
		}
		wg.Wait()
	}
	for range warm {
		round()
	}
	goroutines := stable(runtime.NumGoroutine)
	before := limitsOf(wiretap.all(t))
	started := time.Now()
	for range rounds / sideBySide {
		round()
		require.NoError(t, b.Publisher().Publish(patient(t), busy.addr, "x"))
	}
	t.Logf("%d times in %v", rounds, time.Since(started))
	assert.LessOrEqual(t, stable(runtime.NumGoroutine), goroutines+1)
	after := limitsOf(wiretap.all(t))
	assert.Equal(t, before.sessions, after.sessions)
	assert.Equal(t, before.links, after.links)
	assert.Equal(t, rounds, after.attached-before.attached)
	assert.Zero(t, after.closes)
	assert.Len(t, b.Subscriptions(), 1)
	require.NoError(t, b.Ready())
	require.Eventually(t, func() bool { return handled.Load() == 1+rounds/sideBySide }, patience, 5*time.Millisecond)
	shutDown(t, b)
}

// stable is the lowest number that count gives within a short while: what is
// about to end is not counted.
func stable(count func() int) int {
	least := count()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); runtime.Gosched() {
		least = min(least, count())
	}
	return least
}
