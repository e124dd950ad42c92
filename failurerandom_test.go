package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// fate is what handlers made of one message.
type fate struct{ accepted, aside bool }

// randomOutcome is every way to end a delivery that there is. It notes those
// that end the message before they do.
func randomOutcome(ctx context.Context, d *amqpflow.Delivery, note func(fate)) error {
	<-time.After(time.Duration(rand.IntN(10)) * time.Millisecond)
	failed := errors.New("failed")
	switch rand.IntN(16) {
	case 0, 1:
		return failed
	case 2:
		return amqpflow.RetryAfter(time.Duration(rand.IntN(3000))*time.Millisecond, failed)
	case 3:
		return amqpflow.Release()
	case 4:
		note(fate{aside: true})
		return amqpflow.Reject(failed)
	case 5:
		note(fate{aside: true})
		return amqpflow.DeadLetter(failed)
	case 6:
		panic(failed)
	case 7:
		runtime.Goexit()
	case 8:
		return d.Settle(ctx, failed)
	case 9:
		note(fate{accepted: true})
		_ = d.Accept(ctx)
		return failed
	case 10:
		note(fate{accepted: true})
		d.Mark(nil)
		return failed
	case 11:
		<-ctx.Done() // HandlerTimeout
		return ctx.Err()
	}
	note(fate{accepted: true})
	return nil
}

func randomOptions(random *rand.Rand) *amqpflow.SubscribeOptions {
	o := &amqpflow.SubscribeOptions{Credit: 1 + random.IntN(16), RetryMax: 2 * time.Second, HandlerTimeout: 50 * time.Millisecond}
	o.Workers = 1 + random.IntN(min(4, o.Credit))
	if o.OrderedRetry = random.IntN(3) == 0; o.OrderedRetry || random.IntN(2) == 0 {
		o.PartitionBy = func(d *amqpflow.Delivery) string { return string(d.Data()[:1]) }
	}
	if random.IntN(2) == 0 {
		o.MaxAttempts = 1 + random.IntN(4)
	}
	if random.IntN(2) == 0 {
		o.DeadLetter = "dead"
	}
	return o
}

// finished counts the settlements that end a message.
func finished(all []amqptest.Settlement) (n int) {
	for _, s := range all {
		if s.Outcome == amqpflow.Accepted || s.Outcome == amqpflow.Rejected {
			n++
		}
	}
	return n
}

// Every outcome, pauses, lost links and lost connections, at random: each message
// ends once, in one of the ways that a handler chose for it, and none is lost.
// The server holds the credit and the single settlement of each delivery.
func TestSubscription_failuresAtRandomLoseNothing(t *testing.T) {
	const total = 40
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			server := amqptest.NewServer(&amqptest.Options{MaxDeliveries: -1})
			for i := range total {
				m := amqp.NewMessage(fmt.Append(nil, i))
				m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint(i)}
				require.NoError(t, server.Put("orders", m))
			}
			require.NoError(t, server.Fault(amqptest.Answer("dead", amqpflow.Released, nil).Chance(0.3, seed).Always()))
			var mu sync.Mutex // guards fates
			fates := map[string]fate{}
			b := amqpflow.New("amqp://localhost")
			opts := randomOptions(random)
			sub := b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
				return randomOutcome(ctx, d, func(f fate) {
					mu.Lock()
					defer mu.Unlock()
					was := fates[d.MessageID()]
					fates[d.MessageID()] = fate{was.accepted || f.accepted, was.aside || f.aside}
				})
			}, opts)
			require.NoError(t, server.Connect(t.Context(), b))
			for range 12 {
				<-time.After(time.Duration(random.IntN(200)) * time.Millisecond)
				switch random.IntN(4) {
				case 0:
					require.NoError(t, server.Fault(amqptest.Detach("orders", "amqp:link:detach-forced", "")))
				case 1:
					require.NoError(t, server.Fault(amqptest.Drop()))
				default:
					_ = sub.Pause(within(t, time.Second)) // an error where the link is lost meanwhile
					require.NoError(t, sub.Resume())
				}
			}
			for patience := 0; finished(server.Settlements("orders")) < total; patience++ {
				<-time.After(time.Second)
				require.Less(t, patience, 1000, "seed %d: %+v", seed, sub.Stats())
			}
			<-time.After(5 * time.Second)
			ends := map[string]int{}
			asideAtPeer := map[string]bool{}
			for _, m := range server.Messages("dead") {
				asideAtPeer[m.Properties.MessageID.(string)] = true
			}
			for _, s := range server.Settlements("orders") {
				if s.Outcome != amqpflow.Accepted && s.Outcome != amqpflow.Rejected {
					continue
				}
				ends[s.MessageID]++
				f := fates[s.MessageID]
				f.aside = f.aside || opts.MaxAttempts > 0
				legitimate := s.Outcome == amqpflow.Rejected && f.aside || s.Outcome == amqpflow.Accepted && (f.accepted || asideAtPeer[s.MessageID])
				assert.True(t, legitimate, "seed %d: message %s ended %v; handlers chose %+v", seed, s.MessageID, s.Outcome, f)
			}
			assert.Len(t, ends, total, "seed %d: lost", seed)
			for id, n := range ends {
				assert.Equal(t, 1, n, "seed %d: message %s", seed, id)
			}
			shutdown(t, b)
			require.NoError(t, server.Close())
		})
		if t.Failed() {
			return
		}
	}
}

// A process that dies while it holds has settled nothing: the peer delivers all
// of it again, to whoever comes.
func TestRetry_processThatDiesDuringAHoldLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer()
		for i := range 10 {
			require.NoError(t, server.Put("orders", amqp.NewMessage(fmt.Append(nil, i))))
		}
		dying := amqpflow.New("amqp://localhost")
		sub := dying.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(time.Hour, errors.New("x"))
		})
		require.NoError(t, server.Connect(t.Context(), dying))
		quiet()
		require.Equal(t, 10, sub.Stats().Retrying)
		require.NoError(t, server.Fault(amqptest.Drop().Always()))
		quiet()
		server.Heal()
		require.Error(t, dying.Ready())
		shutdown(t, dying)
		assert.Empty(t, server.Settlements("orders"))
		bodies, err := amqptest.Bodies[string](server, "orders")
		require.NoError(t, err)
		assert.Len(t, bodies, 10)
		require.NoError(t, server.Close())
	})
}
