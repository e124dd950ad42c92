package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// steps records in which order things happen.
type steps struct{ gathered[string] }

func (s *steps) middleware(name string) amqpflow.Middleware {
	return func(next amqpflow.CallFunc) amqpflow.CallFunc {
		s.add("apply " + name)
		return func(ctx context.Context, c *amqpflow.Call) error {
			s.add(fmt.Sprint(name, " ", len(c.Deliveries)))
			err := next(ctx, c)
			s.add(fmt.Sprint(name, " ", err))
			return err
		}
	}
}

func TestMiddleware_runsOutermostFirstBrokerBeforeSubscription(t *testing.T) {
	fail := errors.New("failed")
	for _, tc := range []struct {
		name      string
		subscribe func(*amqpflow.Broker, *steps, *amqpflow.SubscribeOptions) *amqpflow.Subscription
		n         int
	}{
		{"single", func(b *amqpflow.Broker, s *steps, o *amqpflow.SubscribeOptions) *amqpflow.Subscription {
			return amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error {
				s.add("handler")
				return fail
			}, o)
		}, 1},
		{"deliveries", func(b *amqpflow.Broker, s *steps, o *amqpflow.SubscribeOptions) *amqpflow.Subscription {
			return b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error {
				s.add("handler")
				return fail
			}, o)
		}, 1},
		{"reply", func(b *amqpflow.Broker, s *steps, o *amqpflow.SubscribeOptions) *amqpflow.Subscription {
			o.ReplyTo = "replies"
			return amqpflow.SubscribeReply(b, "orders", func(context.Context, *amqpflow.Message[string]) (string, error) {
				s.add("handler")
				return "", fail
			}, o)
		}, 1},
		{"batch", func(b *amqpflow.Broker, s *steps, o *amqpflow.SubscribeOptions) *amqpflow.Subscription {
			o.BatchSize = 2
			return amqpflow.SubscribeBatch(b, "orders", func(context.Context, []*amqpflow.Message[string]) error {
				s.add("handler")
				return fail
			}, o)
		}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s steps
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{Middleware: []amqpflow.Middleware{s.middleware("a"), s.middleware("b")}})
				tc.subscribe(b, &s, &amqpflow.SubscribeOptions{Middleware: []amqpflow.Middleware{s.middleware("c"), s.middleware("d")}})
				p.connect(b)
				for range tc.n {
					p.deliver("orders", data("x"))
				}
				quiet()
				n := fmt.Sprint(" ", tc.n)
				assert.Equal(t, []string{
					"apply d", "apply c", "apply b", "apply a",
					"a" + n, "b" + n, "c" + n, "d" + n, "handler", "d failed", "c failed", "b failed", "a failed",
				}, s.all())
				p.deliver("orders", data("x"))
				quiet()
				for range tc.n {
					p.deliver("orders", data("x"))
				}
				quiet()
				assert.NotContains(t, s.all()[4:], "apply a", "applied once")
				shutdown(t, b)
			})
		})
	}
}

func TestMiddleware_mayChangeTheOutcome(t *testing.T) {
	for _, tc := range []struct {
		name   string
		result error // of the handler
		change func(error) error
		want   wire.StateKind
	}{
		{"success into a rejection", nil, func(error) error { return amqpflow.Reject(errors.New("audit")) }, wire.StateRejected},
		{"failure into success", errors.New("x"), func(error) error { return nil }, wire.StateAccepted},
		{"an outcome wrapped", amqpflow.Release(), func(err error) error { return fmt.Errorf("seen: %w", err) }, wire.StateReleased},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { return tc.result }, nil,
					&amqpflow.Options{Middleware: []amqpflow.Middleware{func(next amqpflow.CallFunc) amqpflow.CallFunc {
						return func(ctx context.Context, c *amqpflow.Call) error { return tc.change(next(ctx, c)) }
					}}})
				p.deliver("orders", data("x"))
				quiet()
				assert.Equal(t, map[uint32][]wire.StateKind{0: {tc.want}}, p.outcomes())
				shutdown(t, b)
			})
		})
	}
}

func TestMiddleware_thatDoesNotCallTheHandlerDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			t.Error("called")
			return nil
		}, &amqpflow.SubscribeOptions{Middleware: []amqpflow.Middleware{func(amqpflow.CallFunc) amqpflow.CallFunc {
			return func(_ context.Context, c *amqpflow.Call) error {
				assert.Equal(t, amqpflow.Address("orders"), c.Subscription.Address())
				assert.Equal(t, "x", string(c.Deliveries[0].Data()))
				return amqpflow.Release()
			}
		}}})
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, uint64(1), sub.Stats().Released)
		shutdown(t, b)
	})
}

// What middleware takes out of a batch its handler does not see, and shares the
// batch's outcome, however the handler ends.
func TestMiddleware_filtersABatch(t *testing.T) {
	for name, end := range map[string]func() error{
		"nil":    func() error { return nil },
		"panic":  func() error { panic("x") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		for kept, want := range map[string]int{"twin": 1, "none": 0} {
			t.Run(name+", keeps "+kept, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeer(t)
					b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
					amqpflow.SubscribeBatch(b, "orders", func(_ context.Context, ms []*amqpflow.Message[string]) error {
						assert.Len(t, ms, want)
						return end()
					}, &amqpflow.SubscribeOptions{BatchSize: 3, RetryMin: -1, Middleware: []amqpflow.Middleware{func(next amqpflow.CallFunc) amqpflow.CallFunc {
						return func(ctx context.Context, c *amqpflow.Call) error {
							c.Deliveries = slices.DeleteFunc(c.Deliveries, func(d *amqpflow.Delivery) bool { return string(d.Data()) != kept })
							return next(ctx, c)
						}
					}}})
					p.connect(b)
					for _, body := range []string{"a", "twin", "b"} {
						p.deliver("orders", data(body))
					}
					quiet()
					outcome := wire.StateAccepted
					if name != "nil" {
						outcome = wire.StateModified
					}
					assert.Equal(t, map[uint32][]wire.StateKind{0: {outcome}, 1: {outcome}, 2: {outcome}}, p.outcomes())
					shutdown(t, b)
				})
			})
		}
	}
}

func TestMiddleware_seesTheHandlersPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen any
		recovering := func(next amqpflow.CallFunc) amqpflow.CallFunc {
			return func(ctx context.Context, c *amqpflow.Call) (err error) {
				defer func() {
					if seen = recover(); seen != nil {
						err = amqpflow.Reject(fmt.Errorf("recovered: %v", seen))
					}
				}()
				return next(ctx, c)
			}
		}
		book := new(logbook)
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { panic("boom") },
			&amqpflow.SubscribeOptions{Middleware: []amqpflow.Middleware{recovering}}, &amqpflow.Options{Logger: book.logger()})
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, "boom", seen)
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateRejected}}, p.outcomes())
		assert.Empty(t, book.line("handler panicked"), "it did not get that far")
		shutdown(t, b)
	})
}

func TestMiddleware_ownPanicIsTheHandlersFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure error
		p, b, _ := serve(t, accepting, &amqpflow.SubscribeOptions{
			RetryMin: -1,
			Middleware: []amqpflow.Middleware{func(next amqpflow.CallFunc) amqpflow.CallFunc {
				return func(ctx context.Context, c *amqpflow.Call) error {
					if err := next(ctx, c); err != nil {
						return err
					}
					panic("late")
				}
			}},
			OnFailure: func(_ *amqpflow.Delivery, err error) error {
				failure = err
				return err
			},
		})
		p.deliver("orders", data("x"))
		quiet()
		var panicked *amqpflow.PanicError
		require.ErrorAs(t, failure, &panicked)
		assert.Equal(t, "late", panicked.Value)
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateModified}}, p.outcomes())
		shutdown(t, b)
	})
}

// Decoding is inside: a middleware sees its error.
func TestMiddleware_seesWhatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen error
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Middleware: []amqpflow.Middleware{func(next amqpflow.CallFunc) amqpflow.CallFunc {
			return func(ctx context.Context, c *amqpflow.Call) error {
				seen = next(ctx, c)
				return seen
			}
		}}})
		amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[part]) error { return nil })
		p.connect(b)
		p.deliver("orders", data("bad"))
		quiet()
		var bad *amqpflow.DecodeError
		require.ErrorAs(t, seen, &bad)
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateRejected}}, p.outcomes())
		shutdown(t, b)
	})
}

func TestMiddleware_contextOfItsOwnReachesTheHandler(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var value any
		shut := make(chan error, 1)
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Middleware: []amqpflow.Middleware{func(next amqpflow.CallFunc) amqpflow.CallFunc {
			return func(ctx context.Context, c *amqpflow.Call) error {
				return next(context.WithValue(ctx, key{}, "traced"), c)
			}
		}}})
		b.Subscribe("orders", func(ctx context.Context, _ *amqpflow.Delivery) error {
			value = ctx.Value(key{})
			shut <- b.Shutdown(ctx) // still known as the handler's
			return nil
		})
		p.connect(b)
		p.deliver("orders", data("x"))
		require.NoError(t, <-shut)
		assert.Equal(t, "traced", value)
	})
}

// publishSteps is a publish middleware that records what passes.
