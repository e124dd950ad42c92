package amqpflow_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"runtime"
	"slices"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// errorsObserved returns an Observer that gathers the errors nobody else gets.
func errorsObserved() (*amqpflow.Observer, *gathered[error]) {
	errs := &gathered[error]{}
	return &amqpflow.Observer{Error: errs.add}, errs
}

func bodySectionsReadAsBytes(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	q.put(t,
		&amqp.Message{Data: [][]byte{[]byte("one "), {}, []byte("two "), []byte("three")}},
		&amqp.Message{Value: "a string"},
		&amqp.Message{Value: []byte("a binary")},
		&amqp.Message{Value: amqp.Null{}},
		&amqp.Message{Data: [][]byte{{}}},
	)
	want := []string{"one two three", "a string", "a binary", "", ""}
	if _, lenient := p.(*artemisPeer); lenient { // the others take no message without a body, section 3.2
		q.put(t, &amqp.Message{})
		want = append(want, "")
	}
	b := brokerAt(p)
	handled := make(chan string, len(want))
	amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[[]byte]) error {
		handled <- string(m.Body)
		return nil
	})
	mustConnect(t, b)
	for _, body := range want {
		assert.Equal(t, body, await(t, patience, handled))
	}
	shutDown(t, b)
	assert.Empty(t, q.rest(t))
}

func bodiesThatAreNoBytesAreRejected(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	q.put(t,
		&amqp.Message{Value: map[string]any{"k": int64(1)}},
		&amqp.Message{Sequence: [][]any{{int64(1), "two"}}},
		textMessage("good"),
	)
	observer, errs := errorsObserved()
	b := brokerAt(p, &amqpflow.Options{Observer: observer})
	handled := make(chan string, 3)
	sub := amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		handled <- string(m.Data())
		return nil
	})
	mustConnect(t, b)

	require.Equal(t, "good", await(t, patience, handled), "the next one is handled")
	assert.Equal(t, amqpflow.Attached, sub.State())
	shutDown(t, b)

	reported := errs.all()
	require.Len(t, reported, 2)
	for _, err := range reported {
		var body *amqpflow.BodyError
		require.ErrorAs(t, err, &body)
		assert.Equal(t, q.addr, body.Address)
		assert.NotEmpty(t, body.Section)
	}
	dead := p.deadLetters(t, q, 2)
	assert.Equal(t, map[string]any{"k": int64(1)}, dead[0].Value)
	assert.Equal(t, [][]any{{int64(1), "two"}}, dead[1].Sequence)
	requireRejections(t, q, amqp.ErrCondNotImplemented, 2)
	assert.Empty(t, q.rest(t))
}

// requireRejections looks at the conditions of the rejections where the peer
// keeps them.
func requireRejections(t *testing.T, q *testQueue, cond amqp.ErrCond, n int) {
	t.Helper()
	fake, ok := q.p.(*fakePeer)
	if !ok {
		return
	}
	rejected := 0
	for _, s := range fake.server.Settlements(q.addr) {
		if s.Outcome != amqpflow.Rejected {
			continue
		}
		rejected++
		require.NotNil(t, s.Error)
		assert.Equal(t, cond, s.Error.Condition)
		assert.NotEmpty(t, s.Error.Description)
	}
	assert.Equal(t, n, rejected)
}

func tooLargeIsRejectedAndTheLinkLives(t *testing.T, p suitePeer) {
	const limit = 100_000
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	sized := func(n int) *amqp.Message {
		return &amqp.Message{Header: durableHeader(), Data: [][]byte{bytes.Repeat([]byte("x"), n)}}
	}
	q.put(t, sized(limit+1), sized(limit), sized(3*limit), sized(3<<20), sized(1))
	observer, errs := errorsObserved()
	b := brokerAt(p, &amqpflow.Options{Observer: observer})
	handled := make(chan int, 5)
	sub := b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
		handled <- len(d.Data())
		return nil
	}, &amqpflow.SubscribeOptions{MaxMessageSize: limit})
	mustConnect(t, b)

	assert.Equal(t, limit, await(t, patience, handled))
	assert.Equal(t, 1, await(t, patience, handled))
	reported := errs.await(t, 3)
	assert.Equal(t, amqpflow.Attached, sub.State())
	assert.NoError(t, b.Ready())
	shutDown(t, b)

	sizes := []int{limit + 1, 3 * limit, 3 << 20}
	for i, err := range reported {
		var large *amqpflow.MessageTooLargeError
		require.ErrorAs(t, err, &large)
		assert.Equal(t, q.addr, large.Address)
		assert.Equal(t, int64(limit), large.Limit)
		assert.InDelta(t, sizes[i]+500, large.Size, 500, "the size of the body, or of the message")
	}
	for i, m := range p.deadLetters(t, q, 3) {
		assert.Len(t, slices.Concat(m.Data...), sizes[i])
	}
	requireRejections(t, q, amqp.ErrCondMessageSizeExceeded, 3)
	assert.Empty(t, q.rest(t))
}

// tooLargeTakesBoundedMemory counts every byte that is allocated while four
// messages of 12 MiB are dropped: the peer must not run in this process.
func tooLargeTakesBoundedMemory(t *testing.T, p suitePeer) {
	if _, fake := p.(*fakePeer); fake {
		t.Skip("what the peer itself allocates cannot be told apart")
	}
	const n, size, limit = 4, 12 << 20, 64 << 10
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	body := make([]byte, size)
	for range n {
		q.put(t, &amqp.Message{Header: durableHeader(), Data: [][]byte{body}})
	}
	q.putBodies(t, "good")
	observer, errs := errorsObserved()
	b := brokerAt(p, &amqpflow.Options{Observer: observer})
	deliveries := deliveriesOf(t, b, q, &amqpflow.SubscribeOptions{MaxMessageSize: limit})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mustConnect(t, b)
	assert.Equal(t, "good", string(await(t, patience, deliveries).Data()))
	errs.await(t, n)
	runtime.ReadMemStats(&after)
	shutDown(t, b)

	took := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes allocated for %d bytes that were dropped", took, n*size)
	assert.Less(t, took, uint64(n*size/2), "only what comes up to the limit, and 1 MiB of sections, is kept")
	p.deadLetters(t, q, n)
}

func oneMiBBothWays(t *testing.T, p suitePeer) {
	in, out := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	bodies := make([][]byte, 5)
	for i := range bodies {
		bodies[i] = make([]byte, 1<<20+i)
		_, _ = rand.Read(bodies[i])
		in.put(t, &amqp.Message{Header: durableHeader(), Data: [][]byte{bodies[i]}})
	}
	b := brokerAt(p)
	forwarded := make(chan error, len(bodies))
	same := make(chan bool, len(bodies))
	next := 0
	amqpflow.Subscribe(b, in.addr, func(ctx context.Context, m *amqpflow.Message[[]byte]) error {
		same <- bytes.Equal(bodies[next], m.Body)
		next++
		err := b.Publisher().Publish(ctx, out.addr, m.Body)
		forwarded <- err
		return err
	})
	mustConnect(t, b)
	for range bodies {
		require.NoError(t, await(t, patience, forwarded))
		assert.True(t, await(t, patience, same), "as go-amqp sent it")
	}
	shutDown(t, b)
	for i, m := range out.take(t, len(bodies)) {
		assert.True(t, bytes.Equal(bodies[i], slices.Concat(m.Data...)), "as amqpflow sent it")
	}
	assert.Empty(t, in.rest(t))
}
