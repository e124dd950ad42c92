package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// diary is what a handler was called with, as "body/attempt", in order.
type diary struct{ gathered[string] }

func (y *diary) note(d *amqpflow.Delivery) { y.add(fmt.Sprintf("%s/%d", d.Data(), d.Attempt())) }

func TestOrderedRetry_retriesInPlaceWithTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls diary
		var at gathered[time.Duration]
		started := time.Now()
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			calls.note(d)
			at.add(time.Since(started))
			if string(d.Data()) == "b" && d.Attempt() < 5 {
				return errors.New("x")
			}
			return nil
		}, &amqpflow.SubscribeOptions{OrderedRetry: true})
		amqpflow.WithoutJitter(b)
		p.deliver("orders", data("a"))
		p.deliver("orders", counted(1, "b"))
		p.deliver("orders", data("c"))
		quiet()
		assert.Equal(t, 1, sub.Stats().Retrying)
		assert.Zero(t, sub.Stats().Running)
		assert.Equal(t, 1, sub.Stats().Held)
		<-time.After(10 * time.Second)
		assert.Equal(t, []string{"a/1", "b/2", "b/3", "b/4", "b/5", "c/1"}, calls.all(), "counted on from the peer's count")
		ms := time.Millisecond
		assert.Equal(t, []time.Duration{0, 0, 200 * ms, 600 * ms, 1400 * ms, 1400 * ms}, at.all())
		accepted := []wire.StateKind{wire.StateAccepted}
		assert.Equal(t, map[uint32][]wire.StateKind{0: accepted, 1: accepted, 2: accepted}, p.outcomes())
		shutdown(t, b)
	})
}

func TestOrderedRetry_otherLanesFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls diary
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			if string(d.Data()) == "bad" {
				return amqpflow.RetryAfter(10*time.Second, errors.New("x"))
			}
			calls.note(d)
			return nil
		}, &amqpflow.SubscribeOptions{OrderedRetry: true, Workers: 8, Credit: 20, PartitionBy: func(d *amqpflow.Delivery) string {
			return string(d.Data())
		}})
		p.deliver("orders", data("bad"))
		quiet()
		key := "a" // one that has another lane
		for ; ; key += "a" {
			p.deliver("orders", data(key))
			quiet()
			if len(calls.all()) > 0 {
				break
			}
		}
		for range 500 {
			p.deliver("orders", data(key))
		}
		quiet()
		assert.Len(t, calls.all(), 501)
		assert.Equal(t, 1, sub.Stats().Retrying)
		shutdown(t, b)
	})
}

func TestOrderedRetry_goesOnAtTheCap(t *testing.T) {
	for _, dead := range []amqpflow.Address{"", "dead"} {
		t.Run(fmt.Sprintf("to %q", dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls diary
				p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					calls.note(d)
					switch string(d.Data()) {
					case "bad":
						return errors.New("x")
					case "gone":
						return amqpflow.DeadLetter(errors.New("x"))
					}
					return nil
				}, &amqpflow.SubscribeOptions{OrderedRetry: true, MaxAttempts: 3, DeadLetter: dead})
				for _, body := range []string{"bad", "gone", "good"} {
					p.deliver("orders", data(body))
				}
				<-time.After(10 * time.Second)
				assert.Equal(t, []string{"bad/1", "bad/2", "bad/3", "gone/1", "good/1"}, calls.all())
				aside := []wire.StateKind{wire.StateRejected}
				if dead != "" {
					aside[0] = wire.StateAccepted
					assert.Len(t, p.sent(wire.CodeTransfer), 2)
				}
				assert.Equal(t, map[uint32][]wire.StateKind{0: aside, 1: aside, 2: {wire.StateAccepted}}, p.outcomes())
				shutdown(t, b)
			})
		})
	}
}

// A dead letter that cannot be published waits in its lane, too.
func TestOrderedRetry_deadLetterThatIsRefusedWaitsInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls diary
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			calls.note(d)
			if string(d.Data()) == "bad" {
				return errors.New("x")
			}
			return nil
		}, &amqpflow.SubscribeOptions{OrderedRetry: true, MaxAttempts: 1, DeadLetter: "dead"})
		refused := 0
		p.on(wire.CodeTransfer, func(f frame) bool {
			if refused++; refused > 2 {
				return false
			}
			p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateReleased})
			return true
		})
		p.deliver("orders", data("bad"))
		p.deliver("orders", data("good"))
		<-time.After(10 * time.Second)
		assert.Equal(t, []string{"bad/1", "bad/2", "bad/3", "good/1"}, calls.all())
		shutdown(t, b)
	})
}

// Each attempt gets a message of its own: what the last one left behind is in
// none of it.
func TestOrderedRetry_eachAttemptIsAFreshMessage(t *testing.T) {
	type order struct{ Item, Note string }
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		var mu sync.Mutex // guards the next two
		var kept []*amqpflow.Message[order]
		var bodies []order
		amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[order]) error {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, m)
			bodies = append(bodies, m.Body)
			if len(kept) == 1 {
				m.Body.Note = "changed"
				m.Mark(errors.New("a retry"))
				return nil
			}
			return nil
		}, &amqpflow.SubscribeOptions{OrderedRetry: true})
		p.connect(b)
		p.deliver("orders", data(`{"Item":"lamp"}`))
		<-time.After(time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []order{{Item: "lamp"}, {Item: "lamp"}}, bodies)
		assert.Equal(t, 1, kept[0].Attempt())
		assert.Equal(t, 2, kept[1].Attempt())
		assert.ErrorIs(t, kept[0].Accept(t.Context()), amqpflow.ErrSettled)
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}}, p.outcomes())
		shutdown(t, b)
	})
}

func TestOrderedRetry_everyWayToFailWaits(t *testing.T) {
	for name, fail := range map[string]func(context.Context, *amqpflow.Delivery) error{
		"error":  func(context.Context, *amqpflow.Delivery) error { return errors.New("x") },
		"panic":  func(context.Context, *amqpflow.Delivery) error { panic("x") },
		"Goexit": func(context.Context, *amqpflow.Delivery) error { runtime.Goexit(); return nil },
		"timeout": func(ctx context.Context, _ *amqpflow.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls diary
				p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
					assert.NoError(t, ctx.Err())
					calls.note(d)
					if string(d.Data()) == "bad" && d.Attempt() < 4 {
						return fail(ctx, d)
					}
					return nil
				}, &amqpflow.SubscribeOptions{OrderedRetry: true, HandlerTimeout: time.Second})
				p.deliver("orders", data("bad"))
				p.deliver("orders", data("good"))
				<-time.After(20 * time.Second)
				assert.Equal(t, []string{"bad/1", "bad/2", "bad/3", "bad/4", "good/1"}, calls.all())
				shutdown(t, b)
			})
		})
	}
}

// What ends a hold gives the lane back: the delivery that waits first.
func TestOrderedRetry_shutdownGivesTheLaneBackInOrder(t *testing.T) {
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
				p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
					return amqpflow.RetryAfter(time.Hour, errors.New("x"))
				}, &amqpflow.SubscribeOptions{OrderedRetry: true})
				for range 4 {
					p.deliver("orders", data("x"))
				}
				quiet()
				started := time.Now()
				require.NoError(t, end(t, b, sub))
				assert.Less(t, time.Since(started), 10*time.Millisecond)
				var order []uint32
				for _, f := range p.sent(wire.CodeDisposition) {
					order = append(order, f.perf.(*wire.Disposition).First)
				}
				assert.Equal(t, []uint32{0, 1}, order, "the retry, then the others as one range")
				released := []wire.StateKind{wire.StateReleased}
				assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateModified}, 1: released, 2: released, 3: released}, p.outcomes())
				assert.Equal(t, uint64(1), sub.Stats().Modified)
				if name == "Close" {
					shutdown(t, b)
				}
			})
		})
	}
}

func TestOrderedRetry_takenBackWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls diary
		p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			assert.NoError(t, ctx.Err())
			calls.note(d)
			if string(d.Data()) == "bad" {
				return amqpflow.RetryAfter(10*time.Second, errors.New("x"))
			}
			return nil
		}, &amqpflow.SubscribeOptions{OrderedRetry: true})
		id := p.deliver("orders", data("bad"))
		p.deliver("orders", data("good"))
		quiet()
		p.takeBack(id)
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{id: {wire.StateReleased}, 1: {wire.StateAccepted}}, p.outcomes())
		assert.Equal(t, []string{"bad/1", "good/1"}, calls.all())
		shutdown(t, b)
	})
}

func TestOrderedRetry_linkLostWhileItWaitsIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		var failed, settled gathered[error]
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(time.Hour, errors.New("x"))
		}, &amqpflow.SubscribeOptions{OrderedRetry: true}, &amqpflow.Options{IdleTimeout: -1, Logger: book.logger(), Observer: &amqpflow.Observer{
			Error:   func(err error) { failed.add(err) },
			Settled: func(_ *amqpflow.Delivery, _ amqpflow.Outcome, _ time.Duration, err error) { settled.add(err) },
		}})
		p.deliver("orders", data("x"))
		quiet()
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		quiet()
		assert.Len(t, failed.all(), 1)
		assert.Len(t, settled.all(), 1)
		assert.Empty(t, book.line("taken back by the peer"))
		shutdown(t, b)
	})
}

func TestOrderedRetry_stuckLaneIsReportedOnce(t *testing.T) {
	for name, opts := range map[string]amqpflow.SubscribeOptions{
		"the only lane": {OrderedRetry: true, Credit: 10},
		"one of two lanes": {
			OrderedRetry: true, Workers: 2, Credit: 10,
			PartitionBy: func(*amqpflow.Delivery) string { return "one" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported gathered[error]
				book := new(logbook)
				p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					if d.Attempt() < 4 {
						return amqpflow.RetryAfter(10*time.Second, errors.New("no answer"))
					}
					return nil
				}, &opts, &amqpflow.Options{IdleTimeout: -1, Logger: book.logger(), Observer: &amqpflow.Observer{Error: func(err error) { reported.add(err) }}})
				for range 5 {
					p.deliver("orders", data("x"))
				}
				quiet()
				assert.Empty(t, reported.all(), "half is not more than half")
				p.deliver("orders", data("x"))
				quiet()
				require.Len(t, reported.all(), 1)
				assert.ErrorContains(t, reported.all()[0], `amqpflow: retry in order "orders"`)
				assert.ErrorContains(t, reported.all()[0], "no answer")
				book.assertLine(t, "level=ERROR", "a lane holds more than half of the window", "address=orders", "behind=5")
				for range 2 {
					p.deliver("orders", data("x"))
				}
				<-time.After(29 * time.Second)
				assert.Len(t, reported.all(), 1, "further attempts are the same episode")
				<-time.After(2 * time.Second)
				assert.Equal(t, uint64(1), sub.Stats().Accepted)
				assert.Len(t, reported.all(), 2, "the next delivery is another")
				shutdown(t, b)
			})
		})
	}
}

func TestOrderedRetry_linkLossEndsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(time.Hour, errors.New("x"))
		}, &amqpflow.SubscribeOptions{OrderedRetry: true})
		for range 3 {
			p.deliver("orders", data("x"))
		}
		quiet()
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		quiet()
		assert.Empty(t, p.outcomes())
		stats := sub.Stats()
		assert.Zero(t, stats.Retrying+stats.Running+stats.Held)
		shutdown(t, b)
	})
}
