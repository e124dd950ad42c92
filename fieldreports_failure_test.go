package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A consumer timeout, or a lock that is lost: the peer settles what the handler
// still works on. The handler learns of it, its settlement is an error and no
// success, the peer gets the answer that it waits for, and nothing else changes,
// however often that happens.
func TestFieldReport_B16_peerTakesADeliveryBackWhileItsHandlerWorks(t *testing.T) {
	const rounds = 1_000
	synctest.Test(t, func(t *testing.T) {
		working := make(chan struct{}, 1)
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			if string(d.Data()) == "fine" {
				return nil
			}
			working <- struct{}{}
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), amqpflow.ErrLinkLost)
			assert.ErrorIs(t, d.Accept(ctx), amqpflow.ErrLinkLost)
			return errors.New("too late")
		}, &amqpflow.SubscribeOptions{Workers: 2, Credit: 4, RetryMin: -1})
		channel := p.link("orders", wire.RoleReceiver).channel
		for round := range rounds {
			id := p.deliver("orders", data("slow"))
			<-working
			p.deliver("orders", data("fine"))
			settled := round%2 == 0 // RabbitMQ leaves that to us
			p.send(channel, &wire.Disposition{Role: wire.RoleSender, First: id, Last: id, Settled: settled, State: wire.State{Kind: wire.StateReleased}})
		}
		quiet()
		kinds := map[wire.StateKind]int{}
		for id, outcomes := range p.outcomes() {
			require.Len(t, outcomes, 1, "delivery %d", id)
			kinds[outcomes[0]]++
		}
		assert.Equal(t, map[wire.StateKind]int{wire.StateReleased: rounds, wire.StateAccepted: rounds}, kinds)
		stats := sub.Stats()
		assert.Equal(t, amqpflow.Stats{Credit: stats.Credit, Received: 2 * rounds, Accepted: rounds}, stats)
		assert.Equal(t, amqpflow.Attached, sub.State())
		shutdown(t, b)
	})
}

// RabbitMQ's consumer is stuck until it has accepted, and only then.
func TestFieldReport_B16_rabbitMQGoesOnAfterAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serveRabbit(t, "4.3.6", func(ctx context.Context, _ *amqpflow.Delivery) error {
			<-ctx.Done()
			return errors.New("too late")
		})
		id := p.deliver("orders", data("slow"))
		quiet()
		p.send(p.link("orders", wire.RoleReceiver).channel, &wire.Disposition{
			Role: wire.RoleSender, First: id, Last: id, State: wire.State{Kind: wire.StateReleased},
		})
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		assert.Zero(t, sub.Stats().Accepted, "which is no success")
		shutdown(t, b)
	})
}

// inOrder fails where a number comes before one that is less and was not seen.
func inOrder(t *testing.T, numbers []int) {
	t.Helper()
	next := 1
	for _, n := range numbers {
		require.LessOrEqual(t, n, next, "%d came before %d", n, next)
		if n == next {
			next++
		}
	}
}

// One publisher that waits for each confirmation, one ordered subscriber that
// fails every tenth attempt, a connection that drops on both, and a shutdown in
// the middle: what is seen twice may be, but nothing overtakes anything.
func TestFieldReport_B45_orderSurvivesRetriesDropsAndShutdown(t *testing.T) {
	const total = 1_000
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer(&amqptest.Options{MaxDeliveries: -1})
		var mu sync.Mutex // guards the next three
		var handled []int
		calls, running := 0, 0
		half, all := make(chan struct{}), make(chan struct{})
		service := func() *amqpflow.Broker {
			b := amqpflow.New("amqp://localhost")
			b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
				mu.Lock()
				calls++
				fails := calls%10 == 0
				running++
				assert.Equal(t, 1, running, "one handler at a time, whatever became of the link")
				mu.Unlock()
				<-time.After(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				running--
				if fails {
					return errors.New("the tenth")
				}
				n, err := strconv.Atoi(string(d.Data()))
				handled = append(handled, n)
				switch {
				case n == total/2 && !closedChan(half):
					close(half)
				case n == total && !closedChan(all):
					close(all)
				}
				return err
			}, &amqpflow.SubscribeOptions{OrderedRetry: true, Credit: 20})
			require.NoError(t, server.Connect(t.Context(), b))
			return b
		}
		var drops atomic.Uint32
		publisher := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{Connection: func(up bool, err error) {
			if !up && err != nil {
				drops.Add(1)
			}
		}}})
		require.NoError(t, server.Connect(t.Context(), publisher))
		b := service()
		before := b.Subscriptions()[0]
		require.NoError(t, server.Fault(amqptest.Drop().After(total/4)))
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := 1; n <= total; {
				err := publisher.Publisher().Publish(t.Context(), "orders", fmt.Append(nil, n))
				if err == nil {
					n++ // else it is sent again, before the next: a duplicate, and no inversion
				}
			}
		})
		<-half
		shutdown(t, b)
		b = service()
		after := b.Subscriptions()[0]
		require.NoError(t, server.Fault(amqptest.Drop().After(total/4)))
		<-all
		wg.Wait()
		shutdown(t, b)
		shutdown(t, publisher)
		assert.Equal(t, uint64(1), before.Stats().Reattached, "one drop before the shutdown")
		assert.Equal(t, uint64(1), after.Stats().Reattached, "and one behind it")
		assert.Equal(t, uint32(2), drops.Load(), "of the publisher's connection, too")
		mu.Lock()
		defer mu.Unlock()
		inOrder(t, handled)
		assert.GreaterOrEqual(t, len(handled), total)
		assert.Equal(t, total, handled[len(handled)-1])
		require.NoError(t, server.Close())
	})
}

// What was not begun goes back oldest first: Close with a window full of
// prefetched deliveries. On the wire neighbours leave as one range, in whatever
// order they were released, so what tells is which of those that cannot be
// released is the first to fail.
func TestFieldReport_B45_closeReleasesOldestFirst(t *testing.T) {
	for gone := uint32(1); gone < 20; gone++ {
		synctest.Test(t, func(t *testing.T) {
			block := make(chan struct{})
			p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { <-block; return nil }, &amqpflow.SubscribeOptions{Credit: 20})
			for range 20 {
				p.deliver("orders", data("x"))
			}
			quiet()
			for id := gone; id < 20; id++ {
				require.NoError(t, amqpflow.SettleUnseen(sub, id))
			}
			time.AfterFunc(time.Second, func() { close(block) })
			err := sub.Close(within(t, 5*time.Second))
			require.ErrorAs(t, err, new(*amqpflow.SettleError))
			require.ErrorContains(t, err, fmt.Sprintf("delivery %d is not outstanding", gone))
			outcomes := p.outcomes()
			for id := uint32(1); id < gone; id++ {
				assert.Equal(t, []wire.StateKind{wire.StateReleased}, outcomes[id])
			}
			assert.Equal(t, uint64(gone-1), sub.Stats().Released)
			shutdown(t, b)
		})
	}
}

func closedChan(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
