package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// request is a message that wants its reply in q.
func request(body string, to *testQueue) *amqp.Message {
	m := textMessage(body)
	m.Properties = &amqp.MessageProperties{ReplyTo: &to.node}
	return m
}

// replyCarriesTheRequestsID looks at the replies with go-amqp, whose requests
// have identifiers of every type.
func replyCarriesTheRequestsID(t *testing.T, p suitePeer) {
	requests, replies := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	uuid := amqp.UUID{1, 2, 3, 15: 4}
	ids := []struct{ message, correlation, want any }{
		{"m", "c", "c"},
		{"m", nil, "m"},
		{uint64(7), nil, uint64(7)},
		{nil, uint64(8), uint64(8)},
		{uuid, nil, uuid},
		{"m", uuid, uuid},
		{[]byte{0xca, 0xfe}, nil, []byte{0xca, 0xfe}},
		{"m", []byte{1}, []byte{1}},
		{nil, nil, nil},
	}
	ms := make([]*amqp.Message, len(ids))
	for i, id := range ids {
		ms[i] = request(fmt.Sprint(i), replies)
		ms[i].Properties.MessageID, ms[i].Properties.CorrelationID = id.message, id.correlation
	}
	requests.put(t, ms...)
	b := brokerAt(p)
	sub := amqpflow.SubscribeReply(b, requests.addr, func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
		return "re: " + m.Body, nil
	})
	mustConnect(t, b)

	for i, m := range replies.take(t, len(ids)) {
		assert.Equal(t, "re: "+fmt.Sprint(i), bodiesOf([]*amqp.Message{m})[0], "one worker replies in order")
		require.NotNil(t, m.Properties)
		assert.Equal(t, ids[i].want, m.Properties.CorrelationID)
		assert.NotNil(t, m.Properties.MessageID)
		require.NotNil(t, m.Properties.ContentType)
		assert.Equal(t, "text/plain", *m.Properties.ContentType)
	}
	shutDown(t, b)
	assert.Equal(t, uint64(len(ids)), sub.Stats().Accepted)
	assert.Empty(t, requests.rest(t))
}

// refusedReplyIsARetry replies to an address whose messages, or whose links,
// the peer refuses: the request is not lost.
func refusedReplyIsARetry(t *testing.T, p suitePeer) {
	for name, addr := range map[string]amqpflow.Address{"a message": p.unroutable(t), "an attach": p.refusingSenders(t)} {
		t.Run(name, func(t *testing.T) {
			if addr == "" {
				t.Skip("does not occur on this peer")
			}
			q := p.newQueue(t, testQueueOptions{deadLetters: true})
			q.putBodies(t, "request")
			var failures gathered[error]
			var attempts gathered[int]
			b := brokerAt(p)
			sub := amqpflow.SubscribeReply(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
				attempts.add(m.Attempt())
				return "reply", nil
			}, &amqpflow.SubscribeOptions{ReplyTo: addr, OnFailure: func(_ *amqpflow.Delivery, err error) error {
				failures.add(err)
				return err
			}})
			mustConnect(t, b)
			for _, err := range failures.await(t, suiteAttempts) {
				var refused *amqpflow.PublishError
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, addr, refused.Address)
				assert.NotErrorIs(t, err, amqpflow.ErrUncertain)
			}
			assert.Equal(t, []string{"request"}, bodiesOf(p.deadLetters(t, q, 1)))
			assert.Equal(t, []int{1, 2, 3}, attempts.all())
			assert.NoError(t, b.Ready())
			shutDown(t, b)
			assert.Equal(t, uint64(suiteAttempts), sub.Stats().Modified)
		})
	}
}

func missingReplyAddressIsRejected(t *testing.T, p suitePeer) {
	q, replies := p.newQueue(t, testQueueOptions{deadLetters: true}), p.newQueue(t, testQueueOptions{})
	q.put(t, textMessage("nowhere"), request("good", replies))
	observer, errs := errorsObserved()
	b := brokerAt(p, &amqpflow.Options{Observer: observer})
	var handled gathered[string]
	amqpflow.SubscribeReply(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
		handled.add(m.Body)
		return m.Body, nil
	})
	mustConnect(t, b)
	assert.Equal(t, []string{"good"}, bodiesOf(replies.take(t, 1)))
	shutDown(t, b)

	assert.Equal(t, []string{"good"}, handled.all(), "no handler ran for the other")
	require.Len(t, errs.all(), 1)
	assert.ErrorContains(t, errs.all()[0], string(q.addr))
	assert.Equal(t, []string{"nowhere"}, bodiesOf(p.deadLetters(t, q, 1)))
	requireRejections(t, q, amqp.ErrCondPreconditionFailed, 1)
}

func failedHandlerSendsNoReply(t *testing.T, p suitePeer) {
	q, replies := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	q.put(t, request("x", replies))
	b := brokerAt(p)
	sub := amqpflow.SubscribeReply(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
		if m.Attempt() == 1 {
			return "wrong", errors.New("not yet")
		}
		return "right", nil
	})
	mustConnect(t, b)
	assert.Equal(t, []string{"right"}, bodiesOf(replies.take(t, 1)))
	shutDown(t, b)
	assert.Equal(t, amqpflow.Stats{Received: 2, Accepted: 1, Modified: 1}, sub.Stats())
	assert.Empty(t, replies.rest(t))
}

// busyHandlersNeverDeadlock has every handler slot wait for a reply, a Send or
// a Publish at once, while others publish to the queues that those handlers
// read, and one unconfirmed message an address is all that may be under way.
func busyHandlersNeverDeadlock(t *testing.T, p suitePeer) {
	const n, slots = 300, 8
	requests, replies, log := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	b := brokerAt(p, &amqpflow.Options{MaxInFlight: 1})
	pub := b.Publisher()
	busy := make(chan struct{}, slots)
	allBusy := make(chan struct{})
	var once sync.Once
	amqpflow.SubscribeReply(b, requests.addr, func(ctx context.Context, m *amqpflow.Message[string]) (string, error) {
		select {
		case busy <- struct{}{}: // the first of each slot wait for one another
			if len(busy) == slots {
				once.Do(func() { close(allBusy) })
			}
			<-allBusy
		default:
		}
		receipt, err := pub.Send(ctx, log.addr, "sent "+m.Body)
		if err != nil {
			return "", err
		}
		if err := pub.Publish(ctx, log.addr, "published "+m.Body); err != nil {
			return "", err
		}
		return "re: " + m.Body, receipt.Wait(ctx)
	}, &amqpflow.SubscribeOptions{Workers: slots, Credit: slots, ReplyTo: replies.addr})
	answered, logged := make(chan struct{}, n), make(chan struct{}, 2*n)
	for q, seen := range map[*testQueue]chan struct{}{replies: answered, log: logged} {
		b.Subscribe(q.addr, func(context.Context, *amqpflow.Delivery) error {
			seen <- struct{}{}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 1})
	}
	mustConnect(t, b)

	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range n / 4 {
				assert.NoError(t, pub.Publish(patient(t), requests.addr, fmt.Sprint(i, "-", j)))
			}
		})
	}
	wg.Wait()
	for range n {
		await(t, patience, answered)
	}
	for range 2 * n {
		await(t, patience, logged)
	}
	shutDown(t, b)
	for _, q := range []*testQueue{requests, replies, log} {
		assert.Empty(t, q.rest(t))
	}
}

// manyWorkersReplyEachToItsOwn has more workers than one, each of which waits
// for its own reply only.
func manyWorkersReplyEachToItsOwn(t *testing.T, p suitePeer) {
	const n = 500
	requests, replies := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	ms := make([]*amqp.Message, n)
	for i := range ms {
		ms[i] = request(fmt.Sprint(i), replies)
		ms[i].Properties.MessageID = uint64(i)
	}
	requests.put(t, ms...)
	b := brokerAt(p)
	sub := amqpflow.SubscribeReply(b, requests.addr, func(_ context.Context, m *amqpflow.Message[string]) ([]byte, error) {
		return []byte("re: " + m.Body), nil
	}, &amqpflow.SubscribeOptions{Workers: 32})
	mustConnect(t, b)
	seen := map[any]bool{}
	for _, m := range replies.take(t, n) {
		id := m.Properties.CorrelationID
		assert.Equal(t, fmt.Sprint("re: ", id), bodiesOf([]*amqp.Message{m})[0])
		assert.False(t, seen[id], "%v is answered once", id)
		seen[id] = true
	}
	require.Eventually(t, func() bool { return sub.Stats().Accepted == n }, patience, 5*time.Millisecond)
	shutDown(t, b)
	assert.Empty(t, requests.rest(t))
	assert.Empty(t, replies.rest(t))
}
