package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

func unroutableIsReleased(t *testing.T, p suitePeer) {
	nowhere := p.unroutable(t)
	if nowhere == "" {
		t.Skip("does not occur on this peer")
	}
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)

	err := b.Publisher().Publish(patient(t), nowhere, "x")

	var refused *amqpflow.PublishError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, amqpflow.Released, refused.Outcome)
	assert.Equal(t, nowhere, refused.Address)
	assert.NotErrorIs(t, err, amqpflow.ErrUncertain)
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "the connection lives"))
	require.ErrorAs(t, b.Publisher().Publish(patient(t), nowhere, "x"), &refused, "and so does the link")
	assert.Equal(t, []string{"the connection lives"}, bodiesOf(q.rest(t)))
}

func publishesLeaveInOrder(t *testing.T, p suitePeer) {
	const n = 50
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)
	want := make([]string, n)
	for i := range want {
		want[i] = strconv.Itoa(i)
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, want[i]))
	}
	assert.Equal(t, want, bodiesOf(q.take(t, n)))
}

// publishStormLosesNoAnswer publishes with contexts of 0 to 2 ms: some end
// before the first frame, some while the peer has the message, some later.
// Whatever happens, each call says which.
func publishStormLosesNoAnswer(t *testing.T, p suitePeer) {
	const publishers = 8
	queues := make([]*testQueue, publishers/2) // two wait for each other
	for i := range queues {
		queues[i] = p.newQueue(t, testQueueOptions{})
	}
	refuseSome(t, queues[0])
	lost := make(chan error, 1)
	b := brokerAt(p, &amqpflow.Options{Observer: &amqpflow.Observer{Connection: func(up bool, err error) {
		if !up && err != nil {
			lost <- err
		}
	}}})
	mustConnect(t, b)

	var confirmed, uncertain, refused, wrong gathered[string]
	unsent := 0
	var mu sync.Mutex // guards unsent
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			q := queues[i%len(queues)]
			for j := range stormSize / publishers {
				body, bound := fmt.Sprintf("%d-%d", i, j), time.Duration(random.Int64N(int64(2*time.Millisecond)))
				if j%50 == 0 {
					bound = patience // a peer that takes longer than 2 ms shall confirm some, too
				}
				ctx, cancel := context.WithTimeout(context.Background(), bound)
				err := b.Publisher().Publish(ctx, q.addr, body)
				cancel()
				switch {
				case err == nil:
					confirmed.add(body)
				case errors.Is(err, amqpflow.ErrUncertain):
					uncertain.add(body)
				case outcomeOf(err) == amqpflow.Released:
					refused.add(body)
				case errors.Is(err, amqpflow.ErrNotSent) && errors.Is(err, context.DeadlineExceeded):
					mu.Lock()
					unsent++
					mu.Unlock()
				default:
					wrong.add(body + ": " + err.Error())
				}
			}
		})
	}
	wg.Wait()
	for _, q := range queues { // each waits for what is still under way to its address
		err := b.Publisher().Publish(patient(t), q.addr, "last")
		for outcomeOf(err) == amqpflow.Released {
			err = b.Publisher().Publish(patient(t), q.addr, "last")
		}
		require.NoError(t, err)
	}
	require.NoError(t, b.Err())
	shutDown(t, b)

	assert.Empty(t, wrong.all())
	assert.Empty(t, lost, "the connection lived")
	known := map[string]bool{} // true: confirmed
	for _, body := range uncertain.all() {
		known[body] = false
	}
	for _, body := range confirmed.all() {
		known[body] = true
	}
	t.Logf("%d confirmed, %d uncertain, %d refused, %d not sent",
		len(confirmed.all()), len(uncertain.all()), len(refused.all()), unsent)
	require.Equal(t, stormSize, len(known)+len(refused.all())+unsent, "one answer for each call")
	require.GreaterOrEqual(t, len(confirmed.all()), stormSize/50)
	stored := map[string]bool{}
	for _, q := range queues {
		bodies := bodiesOf(q.restWith(t, "last"))
		require.NotEmpty(t, bodies)
		require.Equal(t, "last", bodies[len(bodies)-1])
		for _, body := range bodies[:len(bodies)-1] {
			_, tried := known[body]
			require.True(t, tried, "%s was not to be sent, but is stored", body)
			require.False(t, stored[body], "%s is stored twice", body)
			stored[body] = true
		}
	}
	for _, body := range confirmed.all() {
		require.True(t, stored[body], "%s was confirmed, but is not stored", body)
	}
}

// refuseSome lets a peer that can do so on demand release a third of what is
// published to q.
func refuseSome(t *testing.T, q *testQueue) {
	t.Helper()
	if fake, ok := q.p.(*fakePeer); ok {
		require.NoError(t, fake.server.Fault(amqptest.Answer(q.addr, amqpflow.Released, nil).After(2).Times(stormSize/20)))
	}
}

// outcomeOf is the outcome with which the peer refused a publish.
func outcomeOf(err error) amqpflow.Outcome {
	if refused, ok := errors.AsType[*amqpflow.PublishError](err); ok {
		return refused.Outcome
	}
	return amqpflow.OutcomeNone
}
