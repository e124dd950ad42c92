package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// freshAddresses are n addresses at which messages are accepted.
func freshAddresses(t *testing.T, p suitePeer, n int) func(int) amqpflow.Address {
	t.Helper()
	prefix := uniqueName()
	topic := func(i int) amqpflow.Address { return amqpflow.Topic(fmt.Sprint(prefix, ".", i)) }
	switch p := p.(type) {
	case *artemisPeer:
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint(prefix, ".", i)
		}
		t.Cleanup(func() { p.deleteAddresses(t, names) })
	case *rabbitPeer:
		all := p.newQueue(t, testQueueOptions{})
		p.manage(t, "POST", "/bindings", map[string]any{
			"source": "amq.topic", "binding_key": prefix + ".#", "destination_queue": all.name, "arguments": map[string]any{},
		})
	}
	return topic
}

// busyHandlersSurviveACut has handlers that publish to an address that is new,
// and wait for the reply to a request, while the connection is cut.
func busyHandlersSurviveACut(t *testing.T, p suitePeer) {
	for workers, n := range map[int]int{1: 40, 8: 160} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			orders := p.newQueue(t, testQueueOptions{})
			orders.putBodies(t, numbered(n)...)
			fresh := freshAddresses(t, p, n)
			var c cutter
			b := amqpflow.WithBackoff(brokerAt(p, &amqpflow.Options{DialContext: c.dial}), 50*time.Millisecond)
			ask := requesting(t, p, b)
			done := make(chan string, 10*n)
			amqpflow.Subscribe(b, orders.addr, func(ctx context.Context, m *amqpflow.Message[string]) error {
				i, err := strconv.Atoi(m.Body)
				if err != nil {
					return err
				}
				if err := b.Publisher().Publish(ctx, fresh(i), "x"); err != nil {
					return err
				}
				reply, err := ask(ctx, m.Body)
				if err != nil {
					return err
				}
				assert.Equal(t, "re: "+m.Body, reply)
				done <- m.Body
				return nil
			}, &amqpflow.SubscribeOptions{Workers: workers, Credit: 50, RetryMax: 20 * time.Millisecond})
			mustConnect(t, b)
			handled := map[string]bool{}
			for len(handled) < n {
				handled[await(t, patience, done)] = true
				if len(handled) == n/2 && c.cuts == 0 {
					c.cut(true)
				}
			}
			for _, sub := range b.Subscriptions() {
				assert.NotZero(t, sub.Stats().Reattached)
			}
		})
	}
}

// requesting registers a service on b, and a reader of its replies. What it
// returns sends a request and waits for the reply.
func requesting(t *testing.T, p suitePeer, b *amqpflow.Broker) func(context.Context, string) (string, error) {
	t.Helper()
	service, replies := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	amqpflow.SubscribeReply(b, service.addr, func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
		return "re: " + m.Body, nil
	}, &amqpflow.SubscribeOptions{Workers: 2, RetryMax: 20 * time.Millisecond})
	var waiting sync.Map // of chan string, by correlation-id
	amqpflow.Subscribe(b, replies.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		if ch, ok := waiting.LoadAndDelete(m.CorrelationID()); ok {
			ch.(chan string) <- m.Body
		}
		return nil
	})
	return func(ctx context.Context, body string) (string, error) {
		id, reply := uniqueName(), make(chan string, 1)
		waiting.Store(id, reply)
		err := b.Publisher().Publish(ctx, service.addr, body, &amqpflow.PublishOptions{
			MessageID: id, ReplyTo: amqpflow.Raw(replies.node),
		})
		if err != nil {
			return "", err
		}
		select {
		case r := <-reply:
			return r, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// dialLater leaves the peer a moment to take back what a connection that was
// cut had: it might deliver to the next one what comes behind that.
func (c *cutter) dialLater(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	again := c.cuts > 0
	c.mu.Unlock()
	if again {
		<-time.After(200 * time.Millisecond)
	}
	return c.dial(ctx, network, addr)
}

// orderSurvivesCutsAndShutdown has one publisher that waits for each answer and
// repeats what was not confirmed, and an ordered subscriber that fails every
// tenth attempt. Both connections are cut, and the subscriber's service is
// replaced by another.
func orderSurvivesCutsAndShutdown(t *testing.T, p suitePeer) {
	const total = 300
	q := p.newQueue(t, testQueueOptions{})
	var running atomic.Int32
	var mu sync.Mutex // guards the next two
	var handled []int
	calls := 0
	progress := make(chan int, 10*total)
	var source, consumer cutter
	service := func() *amqpflow.Broker {
		b := amqpflow.WithBackoff(brokerAt(p, &amqpflow.Options{DialContext: consumer.dialLater}), 50*time.Millisecond)
		b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
			assert.Equal(t, int32(1), running.Add(1), "one handler at a time, whatever became of the link")
			defer running.Add(-1)
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%10 == 0 {
				return errors.New("the tenth")
			}
			n, err := strconv.Atoi(string(d.Data()))
			handled = append(handled, n)
			progress <- n
			return err
		}, &amqpflow.SubscribeOptions{OrderedRetry: true, Credit: 20, RetryMax: 5 * time.Millisecond})
		require.NoError(t, b.Connect(patient(t)))
		return b
	}
	reach := func(n int) {
		for await(t, patience, progress) < n {
		}
	}
	publisher := amqpflow.WithBackoff(brokerAt(p, &amqpflow.Options{DialContext: source.dial}), 50*time.Millisecond)
	mustConnect(t, publisher)
	b := service()
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx := patient(t)
		for n := 1; n <= total && ctx.Err() == nil; {
			if publisher.Publisher().Publish(ctx, q.addr, fmt.Append(nil, n)) == nil {
				n++ // else it is published again, before the next
			}
		}
	})
	reach(total / 4)
	source.cut(true)
	consumer.cut(true)
	reach(total / 2)
	reattached := b.Subscriptions()[0].Stats().Reattached
	shutDown(t, b)
	b = service()
	reach(total)
	wg.Wait()
	shutDown(t, b)
	assert.NotZero(t, reattached, "the subscriber's link was lost")
	inOrder(t, handled)
	t.Logf("%d handled of %d", len(handled), total)
}
