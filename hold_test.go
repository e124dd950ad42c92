package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// counted is a message that was delivered count times before.
func counted(count uint32, body string) []byte {
	header := wire.Header{Priority: wire.DefaultPriority, DeliveryCount: count}
	return wire.AppendData(header.Append(nil), []byte(body))
}

// gathering is how long a disposition may wait for others.
const gathering = 2 * time.Millisecond

func TestRetry_isHeldByTheAttempt(t *testing.T) {
	failed := errors.New("x")
	for _, tc := range []struct {
		name   string
		count  uint32
		result error
		opts   amqpflow.SubscribeOptions
		want   time.Duration
	}{
		{"first attempt", 0, failed, amqpflow.SubscribeOptions{}, 100 * time.Millisecond},
		{"second attempt", 1, amqpflow.Retry(failed), amqpflow.SubscribeOptions{}, 200 * time.Millisecond},
		{"seventh attempt", 6, failed, amqpflow.SubscribeOptions{}, 6400 * time.Millisecond},
		{"eighth attempt", 7, failed, amqpflow.SubscribeOptions{}, 10 * time.Second},
		{"after many", 1 << 31, failed, amqpflow.SubscribeOptions{}, 10 * time.Second},
		{"own bounds", 2, failed, amqpflow.SubscribeOptions{RetryMin: time.Second, RetryMax: 3 * time.Second}, 3 * time.Second},
		{"own minimum alone", 0, failed, amqpflow.SubscribeOptions{RetryMin: 20 * time.Second}, 20 * time.Second},
		{"own maximum alone", 5, failed, amqpflow.SubscribeOptions{RetryMax: 10 * time.Millisecond}, 10 * time.Millisecond},
		{"none", 0, failed, amqpflow.SubscribeOptions{RetryMin: -1}, 0},
		{"RetryAfter", 5, amqpflow.RetryAfter(17*time.Second, failed), amqpflow.SubscribeOptions{}, 17 * time.Second},
		{"RetryAfter without a backoff", 0, amqpflow.RetryAfter(time.Second, failed), amqpflow.SubscribeOptions{RetryMin: -1}, time.Second},
		{"RetryAfter, wrapped", 0, fmt.Errorf("more: %w", amqpflow.RetryAfter(time.Second, nil)), amqpflow.SubscribeOptions{}, time.Second},
		{"RetryAfter nothing", 0, amqpflow.RetryAfter(0, failed), amqpflow.SubscribeOptions{}, 100 * time.Millisecond},
		{"RetryAfter less", 0, amqpflow.RetryAfter(-1, failed), amqpflow.SubscribeOptions{}, 0},
		{"for others", 0, &amqpflow.OutcomeError{Outcome: amqpflow.Modified, UndeliverableHere: true}, amqpflow.SubscribeOptions{}, 0},
		{"for others, later", 0, &amqpflow.OutcomeError{Outcome: amqpflow.Modified, UndeliverableHere: true, Delay: time.Second}, amqpflow.SubscribeOptions{}, time.Second},
		{"panic", 0, nil, amqpflow.SubscribeOptions{}, 100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error {
					if tc.result == nil {
						panic("x")
					}
					return tc.result
				}, &tc.opts)
				amqpflow.WithoutJitter(b)
				started := time.Now()
				p.deliver("orders", counted(tc.count, "x"))
				d := p.awaitDisposition()
				assert.Equal(t, wire.StateModified, d.State.Kind)
				assert.True(t, d.State.DeliveryFailed)
				took := time.Since(started)
				assert.GreaterOrEqual(t, took, tc.want)
				assert.LessOrEqual(t, took, tc.want+gathering)
				shutdown(t, b)
			})
		})
	}
}

// Beyond half of the window a retry leaves at once, and what comes goes on.
func TestRetry_holdsHalfOfTheWindowAtMost(t *testing.T) {
	for credit, most := range map[int]int{1: 1, 2: 1, 3: 2, 10: 5} {
		t.Run(fmt.Sprint("credit ", credit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
					return amqpflow.RetryAfter(30*time.Second, errors.New("x"))
				}, &amqpflow.SubscribeOptions{Credit: credit})
				for range credit {
					p.deliver("orders", data("x"))
				}
				quiet()
				assert.Len(t, p.outcomes(), credit-most)
				stats := sub.Stats()
				assert.Equal(t, most, stats.Retrying)
				assert.Zero(t, stats.Running)
				<-time.After(30 * time.Second)
				quiet()
				assert.Len(t, p.outcomes(), credit)
				assert.Zero(t, sub.Stats().Retrying)
				shutdown(t, b)
			})
		})
	}
}

// With half of the window held for long, everything else flows, and the peer
// never has more than the window unsettled.
func TestRetry_heldDeliveriesStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const credit, total = 6, 500
		bad := credit / 2
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			if string(d.Data()) == "bad" {
				return amqpflow.RetryAfter(20*time.Second, errors.New("x"))
			}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: credit})
		w := &window{p: p}
		l := p.link("orders", wire.RoleReceiver)
		started := time.Now()
		for i := range total {
			body := "good"
			if i%2 == 0 && i/2 < bad {
				body = "bad"
			}
			p.deliver("orders", data(body))
			w.sent++
			synctest.Wait()
			unsettled, granted := w.outstanding(l)
			require.LessOrEqual(t, unsettled+max(granted, 0), credit)
		}
		assert.Less(t, time.Since(started), 10*time.Second)
		assert.Equal(t, bad, sub.Stats().Retrying)
		quiet()
		assert.Len(t, p.outcomes(), total-bad)
		shutdown(t, b)
		assert.Len(t, p.outcomes(), total)
	})
}

func TestRetry_holdsEndWithTheSubscription(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *amqpflow.Broker, *amqpflow.Subscription) error{
		"Shutdown": func(t *testing.T, b *amqpflow.Broker, _ *amqpflow.Subscription) error {
			return b.Shutdown(within(t, time.Second))
		},
		"Close": func(t *testing.T, _ *amqpflow.Broker, s *amqpflow.Subscription) error {
			return s.Close(within(t, time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told gathered[amqpflow.Outcome]
				begun, release := make(chan struct{}), make(chan struct{})
				p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					if string(d.Data()) == "running" {
						close(begun)
						<-release
					}
					return amqpflow.RetryAfter(time.Hour, errors.New("x"))
				}, nil, &amqpflow.Options{Observer: &amqpflow.Observer{
					Settled: func(_ *amqpflow.Delivery, o amqpflow.Outcome, _ time.Duration, _ error) { told.add(o) },
				}})
				for range 10 {
					p.deliver("orders", data("x"))
				}
				p.deliver("orders", data("running"))
				<-begun
				require.Equal(t, 10, sub.Stats().Retrying)
				started := time.Now()
				time.AfterFunc(50*time.Millisecond, func() { close(release) })
				require.NoError(t, end(t, b, sub))
				assert.LessOrEqual(t, time.Since(started), 60*time.Millisecond)
				want := map[uint32][]wire.StateKind{}
				for id := range uint32(11) { // the one that fails meanwhile is not held
					want[id] = []wire.StateKind{wire.StateModified}
				}
				assert.Equal(t, want, p.outcomes())
				assert.Len(t, told.all(), 11)
				assert.Equal(t, uint64(11), sub.Stats().Modified)
				if name == "Close" {
					shutdown(t, b)
				}
			})
		})
	}
}

func TestRetry_holdsEndWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told gathered[error]
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(time.Hour, errors.New("x"))
		}, nil, &amqpflow.Options{Observer: &amqpflow.Observer{
			Settled: func(_ *amqpflow.Delivery, _ amqpflow.Outcome, _ time.Duration, err error) { told.add(err) },
		}})
		for range 3 {
			p.deliver("orders", data("x"))
		}
		quiet()
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: &wire.Error{Condition: "amqp:link:detach-forced"}})
		quiet()
		assert.Zero(t, sub.Stats().Retrying)
		assert.Len(t, told.all(), 3)
		for _, err := range told.all() {
			assert.ErrorIs(t, err, amqpflow.ErrLinkLost)
		}
		assert.Empty(t, p.outcomes(), "nothing is settled on a link that is gone")
		shutdown(t, b)
	})
}

func TestRetry_heldDeliveryThatIsTakenBackIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		var kept *amqpflow.Delivery
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			kept = d
			return amqpflow.RetryAfter(time.Minute, errors.New("x"))
		}, nil, &amqpflow.Options{Logger: book.logger()})
		id := p.deliver("orders", data("x"))
		quiet()
		p.takeBack(id)
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{id: {wire.StateReleased}}, p.outcomes())
		assert.Zero(t, sub.Stats().Retrying)
		assert.ErrorIs(t, kept.Accept(t.Context()), amqpflow.ErrLinkLost)
		book.assertLine(t, "level=ERROR", "settlement lost", "took the delivery back")
		shutdown(t, b)
	})
}

func TestRetry_isToldWhenItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type settled struct {
			outcome amqpflow.Outcome
			took    time.Duration
			err     error
		}
		failed := errors.New("the database is away")
		told := make(chan settled, 10)
		book := new(logbook)
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error {
			<-time.After(30 * time.Millisecond)
			return failed
		}, nil, &amqpflow.Options{Logger: book.logger(), Observer: &amqpflow.Observer{
			Settled: func(_ *amqpflow.Delivery, o amqpflow.Outcome, took time.Duration, err error) {
				told <- settled{o, took, err}
			},
		}})
		amqpflow.WithoutJitter(b)
		p.deliver("orders", counted(1, "x"))
		<-time.After(40 * time.Millisecond)
		book.assertLine(t, "level=WARN", "retry held", "address=orders", "attempt=2", "delay=200ms", `error="the database is away"`)
		assert.Empty(t, told)
		assert.Equal(t, settled{amqpflow.Modified, 30 * time.Millisecond, failed}, <-told, "the hold is not the handler's time")
		quiet()
		assert.Empty(t, told)
		book.assertLine(t, "level=DEBUG", "settled", "outcome=modified")
		shutdown(t, b)
	})
}

func TestRetry_settledByHandIsHeldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			assert.NoError(t, d.Settle(ctx, errors.New("x")))
			assert.ErrorIs(t, d.Settle(ctx, amqpflow.RetryAfter(time.Hour, nil)), amqpflow.ErrSettled)
			assert.ErrorIs(t, d.Accept(ctx), amqpflow.ErrSettled)
			return nil
		}, nil)
		amqpflow.WithoutJitter(b)
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, 1, sub.Stats().Retrying)
		assert.Empty(t, p.outcomes())
		<-time.After(100 * time.Millisecond)
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateModified}}, p.outcomes())
		shutdown(t, b)
	})
}

// The first to fail is not the first to be due.
func TestRetry_eachLeavesAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := []time.Duration{7 * time.Second, time.Second, 4 * time.Second, 4 * time.Second, 2 * time.Second}
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(delays[d.Data()[0]], errors.New("x"))
		}, nil)
		started := time.Now()
		for i := range delays {
			p.deliver("orders", data(string(rune(i))))
		}
		quiet()
		for range 4 {
			d := p.awaitDisposition()
			assert.InDelta(t, delays[d.First], time.Since(started), float64(gathering))
		}
		shutdown(t, b)
	})
}

func TestRetry_holdsTakeNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(10*time.Second, errors.New("x"))
		}, nil)
		base := runtime.NumGoroutine()
		for range 100 {
			p.deliver("orders", data("x"))
		}
		quiet()
		assert.Equal(t, 100, sub.Stats().Retrying)
		assert.LessOrEqual(t, runtime.NumGoroutine(), base)
		<-time.After(10 * time.Second)
		quiet()
		assert.Len(t, p.outcomes(), 100)
		shutdown(t, b)
	})
}
