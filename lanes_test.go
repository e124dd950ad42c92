package amqpflow_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// byFirstWord makes the lane of a body "key number" that of its key.
func byFirstWord(d *amqpflow.Delivery) string {
	key, _, _ := strings.Cut(string(d.Data()), " ")
	return key
}

// laneKeys returns a key for each of n lanes: two keys share one where their
// handlers' contexts are the same, since a context belongs to a worker.
func laneKeys(t *testing.T, p *peer, seen chan laneCall, n int) []string {
	t.Helper()
	lanes := map[context.Context]string{}
	for i := 0; len(lanes) < n; i++ {
		require.Less(t, i, 1000)
		key := fmt.Sprint("key", i)
		p.deliver("orders", data(key+" probe"))
		call := <-seen
		if _, ok := lanes[call.ctx]; !ok {
			lanes[call.ctx] = key
		}
	}
	keys := make([]string, 0, n)
	for _, key := range lanes {
		keys = append(keys, key)
	}
	quiet()
	return keys
}

type laneCall struct {
	ctx  context.Context
	body string
}

func TestSubscription_aBlockedLaneHoldsUpNoOtherWhileTheWindowHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes, credit = 4, 16
		seen := make(chan laneCall, 100)
		block := map[string]chan struct{}{}
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			seen <- laneCall{ctx, string(d.Data())}
			if ch := block[string(d.Data())]; ch != nil {
				<-ch
			}
			return nil
		}, &amqpflow.SubscribeOptions{Workers: lanes, PartitionBy: byFirstWord, Credit: credit})
		keys := laneKeys(t, p, seen, lanes)
		stuck := make(chan struct{})
		block[keys[0]+" stuck"] = stuck
		p.deliver("orders", data(keys[0]+" stuck"))
		require.Equal(t, keys[0]+" stuck", (<-seen).body)
		for i := range credit - 2 { // behind it, until one place is left
			p.deliver("orders", data(fmt.Sprint(keys[0], " ", i)))
		}
		for i := range 50 {
			for _, key := range keys[1:] {
				body := fmt.Sprint(key, " ", i)
				p.deliver("orders", data(body))
				assert.Equal(t, body, (<-seen).body)
			}
		}
		quiet()
		assert.Equal(t, credit-2, sub.Stats().Held)
		assert.Equal(t, 1, sub.Stats().Running)

		p.deliver("orders", data(keys[0]+" last")) // the window is full
		quiet()
		assert.Zero(t, sub.Stats().Credit)
		assert.Equal(t, credit-1, sub.Stats().Held)
		close(stuck)
		for i := range credit - 2 {
			assert.Equal(t, fmt.Sprint(keys[0], " ", i), (<-seen).body, "in order")
		}
		assert.Equal(t, keys[0]+" last", (<-seen).body)
		shutdown(t, b)
	})
}

func TestSubscription_emptyKeysGoToTheLanesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 4
		begun, goOn := make(chan string, lanes+1), make(chan struct{})
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			begun <- string(d.Data())
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{Workers: lanes, PartitionBy: func(*amqpflow.Delivery) string { return "" }})
		for i := range lanes + 1 {
			p.deliver("orders", data(fmt.Sprint(i)))
		}
		synctest.Wait()
		assert.Len(t, begun, lanes, "one in each lane")
		assert.Equal(t, lanes, sub.Stats().Running)
		assert.Equal(t, 1, sub.Stats().Held)
		close(goOn)
		shutdown(t, b)
	})
}

func TestSubscription_partitionByThatPanicsCostsTheOrderOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		handled := make(chan string, 3)
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			handled <- string(d.Data())
			return nil
		}, &amqpflow.SubscribeOptions{Workers: 2, PartitionBy: func(d *amqpflow.Delivery) string {
			if string(d.Data()) == "bad" {
				panic("no key")
			}
			return "key"
		}}, &amqpflow.Options{Logger: book.logger()})
		for _, body := range []string{"one", "bad", "two"} {
			p.deliver("orders", data(body))
		}
		quiet()
		got := []string{<-handled, <-handled, <-handled}
		assert.ElementsMatch(t, []string{"one", "bad", "two"}, got)
		book.assertLine(t, "level=ERROR", "PartitionBy panicked", "no key", "address=orders")
		shutdown(t, b)
	})
}

// What one turn takes from the link goes on behind it, and the link is watched.
func TestSubscription_partitionByThatEndsItsGoroutineCostsTheOrderOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan struct{})
		p, b, sub := serve(t, accepting, &amqpflow.SubscribeOptions{Workers: 2, PartitionBy: func(d *amqpflow.Delivery) string {
			<-sent
			if string(d.Data()) == "bad" {
				runtime.Goexit()
			}
			return "key"
		}})
		for _, body := range []string{"bad", "one", "bad", "bad", "two", "bad"} {
			p.deliver("orders", data(body))
		}
		quiet()
		close(sent)
		quiet()
		assert.Len(t, p.outcomes(), 6)
		assert.Equal(t, uint64(6), sub.Stats().Accepted)
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		<-time.After(time.Minute)
		assert.Equal(t, uint64(1), sub.Stats().Reattached)
		started := time.Now()
		shutdown(t, b)
		assert.Zero(t, time.Since(started))
	})
}

func TestSubscription_workersRunAtOnceAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 8
		begun, goOn := make(chan struct{}, 100), make(chan struct{})
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{Workers: workers, Credit: 20})
		for range 20 {
			p.deliver("orders", data("x"))
		}
		synctest.Wait()
		assert.Len(t, begun, workers)
		assert.Equal(t, amqpflow.Stats{Running: workers, Held: 12, Received: 20}, sub.Stats())
		goOn <- struct{}{}
		synctest.Wait()
		assert.Len(t, begun, workers+1, "the next begins when one has ended")
		close(goOn)
		shutdown(t, b)
		assert.Equal(t, uint64(20), sub.Stats().Accepted+sub.Stats().Released)
	})
}

func TestSubscription_shutdownReleasesWhatEveryLaneHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes, n = 4, 40
		begun, goOn := make(chan struct{}, n), make(chan struct{})
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{Workers: lanes, PartitionBy: func(*amqpflow.Delivery) string { return "" }})
		for range n {
			p.deliver("orders", data("x"))
		}
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(within(t, 10*time.Second)) }()
		synctest.Wait()
		assert.Equal(t, uint64(n-lanes), sub.Stats().Released, "before the handlers have ended")
		close(goOn)
		require.NoError(t, <-ended)
		assert.Len(t, begun, lanes, "no other begins")
		outcomes := p.outcomes()
		require.Len(t, outcomes, n)
		released := 0
		for _, kinds := range outcomes {
			require.Len(t, kinds, 1, "each is settled once")
			if kinds[0] == wire.StateReleased {
				released++
			}
		}
		assert.Equal(t, n-lanes, released)
	})
}
