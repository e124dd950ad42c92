package amqpflow_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// tenThousandAddressesThroughTwoHundredLinks sends to topics where the peer
// has them: what nobody subscribes to leaves nothing behind.
func tenThousandAddressesThroughTwoHundredLinks(t *testing.T, p suitePeer) {
	const goroutines = 8
	addresses := stormSize
	prefix := uniqueName()
	addressOf := func(i int) amqpflow.Address { return amqpflow.Topic(fmt.Sprint(prefix, ".", i)) }
	var arrived func() []string
	switch p := p.(type) {
	case *artemisPeer:
		arrived = readTopics(t, p, prefix+".#", addresses)
		names := make([]string, addresses)
		for i := range names {
			names[i] = fmt.Sprint(prefix, ".", i)
		}
		t.Cleanup(func() { p.deleteAddresses(t, names) })
	case *fakePeer: // it keeps each queue, and each link is probed first
		addresses /= 5
		addressOf = func(i int) amqpflow.Address { return amqpflow.Queue(fmt.Sprint(prefix, ".", i)) }
		arrived = func() []string {
			var bodies []string
			for i := range addresses {
				bodies = append(bodies, bodiesOf(p.server.Messages(addressOf(i)))...)
			}
			return bodies
		}
	default:
		t.Skip("10,000 queues would have to be declared first")
	}
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	mustConnect(t, b)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	started := time.Now()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < addresses; i += goroutines {
				r, err := b.Publisher().Send(ctx, addressOf(i), fmt.Sprint(i))
				if assert.NoError(t, err) {
					assert.NoError(t, r.Wait(ctx))
				}
			}
		})
	}
	wg.Wait()
	l := limitsOf(wiretap.all(t))
	t.Logf("%d attaches, %d links and %d sessions at most, in %v", l.attached, l.mostLinks, l.mostSessions, time.Since(started))
	assert.GreaterOrEqual(t, l.attached, addresses)
	assert.LessOrEqual(t, l.mostLinks, 200+goroutines, "200 are kept; a probe is not")
	assert.Zero(t, l.closes)
	assert.ElementsMatch(t, numbered(addresses), arrived())
	shutDown(t, b)
}

// readTopics subscribes to a wildcard and returns what waits for n bodies.
func readTopics(t *testing.T, p suitePeer, node string, n int) func() []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
	t.Cleanup(cancel)
	receiver, err := rawSession(t, p).NewReceiver(ctx, node, &amqp.ReceiverOptions{
		SourceCapabilities: []string{"topic"}, Credit: 500, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	require.NoError(t, err)
	var bodies []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for len(bodies) < n {
			m, err := receiver.Receive(ctx, nil)
			if !assert.NoError(t, err) {
				return
			}
			bodies = append(bodies, bodiesOf([]*amqp.Message{m})...)
		}
	})
	return func() []string {
		wg.Wait()
		return bodies
	}
}

// refusedAddressHarmsNoPublisher publishes to sixteen queues at once while
// somebody keeps trying an address that is refused.
func refusedAddressHarmsNoPublisher(t *testing.T, p suitePeer) {
	const publishers, each, refusals = 16, 60, 20
	refusing := p.refusingSenders(t)
	queues := make([]*testQueue, publishers)
	for i := range queues {
		queues[i] = p.newQueue(t, testQueueOptions{})
	}
	b := brokerAt(p)
	mustConnect(t, b)
	harmless(t, b, publishers, each, refusals, func(i int) amqpflow.Address { return queues[i].addr }, refusing)
	for _, q := range queues {
		assert.Equal(t, numbered(each), bodiesOf(q.take(t, each)))
		assert.Empty(t, q.rest(t))
	}
	shutDown(t, b)
}

// harmless publishes to many addresses side by side, and to one that is
// refused: that one alone fails.
func harmless(t *testing.T, b *amqpflow.Broker, publishers, each, refusals int, addr func(int) amqpflow.Address, refusing amqpflow.Address) {
	t.Helper()
	ctx := patient(t)
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for j := range each {
				if i%2 == 0 {
					assert.NoError(t, b.Publisher().Publish(ctx, addr(i), fmt.Sprint(j)))
				} else if r, err := b.Publisher().Send(ctx, addr(i), fmt.Sprint(j)); assert.NoError(t, err) {
					assert.NoError(t, r.Wait(ctx))
				}
			}
		})
	}
	for range refusals {
		err := b.Publisher().Publish(ctx, refusing, "x")
		var failed *amqpflow.AttachError
		if assert.ErrorAs(t, err, &failed) {
			assert.Equal(t, refusing, failed.Address)
		}
		assert.ErrorIs(t, err, amqpflow.ErrNotSent)
	}
	wg.Wait()
	require.NoError(t, b.Err())
}
