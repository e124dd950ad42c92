package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
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
func (s *steps) publish(name string) amqpflow.PublishMiddleware {
	return func(next amqpflow.PublishFunc) amqpflow.PublishFunc {
		s.add("apply " + name)
		return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
			s.add(fmt.Sprint(name, " ", addr, " ", string(m.Data[0])))
			err := next(ctx, addr, m)
			s.add(fmt.Sprint(name, " ", err == nil))
			return err
		}
	}
}

func TestPublishMiddleware_wrapsPublishSendAndReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s steps
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{PublishMiddleware: []amqpflow.PublishMiddleware{s.publish("a"), s.publish("b")}})
		amqpflow.SubscribeReply(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) (string, error) {
			return "re: " + m.Body, nil
		}, &amqpflow.SubscribeOptions{ReplyTo: "replies"})
		p.connect(b)
		through := func(addr, body string) []string {
			return []string{"a " + addr + " " + body, "b " + addr + " " + body, "b true", "a true"}
		}
		want := []string{"apply b", "apply a"}
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "published"))
		want = append(want, through("out", "published")...)
		r, err := b.Publisher().Send(t.Context(), "out", "sent")
		require.NoError(t, err)
		require.NoError(t, r.Wait(t.Context()))
		want = append(want, through("out", "sent")...)
		p.deliver("orders", data("x"))
		quiet()
		want = append(want, through("replies", "re: x")...)
		assert.Equal(t, want, s.all())
		shutdown(t, b)
	})
}

func TestPublishMiddleware_nextReturnsWithTheOutcomeAndForSendWhenQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := make(chan error, 2)
		observed := make(chan amqpflow.Outcome, 2)
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{
			PublishMiddleware: []amqpflow.PublishMiddleware{func(next amqpflow.PublishFunc) amqpflow.PublishFunc {
				return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
					err := next(ctx, addr, m)
					returned <- err
					return err
				}
			}},
			Observer: &amqpflow.Observer{Published: func(_ amqpflow.Address, o amqpflow.Outcome, _ time.Duration, _ error) { observed <- o }},
		})
		p.connect(b)
		transfers := make(chan frame, 2)
		p.on(wire.CodeTransfer, func(f frame) bool { transfers <- f; return true })
		r, err := b.Publisher().Send(t.Context(), "out", "sent")
		require.NoError(t, err)
		require.NoError(t, <-returned, "queued is enough")
		f := <-transfers
		synctest.Wait()
		assert.Empty(t, observed)
		p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateReleased})
		require.Error(t, r.Wait(t.Context()))
		assert.Equal(t, amqpflow.Released, <-observed)

		published := make(chan error, 1)
		go func() { published <- b.Publisher().Publish(t.Context(), "out", "published") }()
		f = <-transfers
		synctest.Wait()
		assert.Empty(t, returned, "the outcome is not known")
		p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateModified})
		var refused *amqpflow.PublishError
		require.ErrorAs(t, <-returned, &refused)
		require.ErrorAs(t, <-published, &refused)
		assert.Equal(t, amqpflow.Modified, <-observed)
		shutdown(t, b)
	})
}

func TestPublishMiddleware_mayChangeTheMessageAndTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{
			PublishMiddleware: []amqpflow.PublishMiddleware{func(next amqpflow.PublishFunc) amqpflow.PublishFunc {
				return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
					switch string(m.Data[0]) {
					case "stop":
						return errors.New("not today")
					case "elsewhere":
						addr = "other"
					case "alone":
						ctx = context.Background() //nolint:contextcheck // the mistake that is tested
					}
					m.ApplicationProperties = map[string]any{"traced": true}
					return next(ctx, addr, m)
				}
			}},
		})
		p.connect(b)
		pub := b.Publisher()
		require.EqualError(t, pub.Publish(t.Context(), "out", "stop"), "not today")
		r, err := pub.Send(t.Context(), "out", "stop")
		require.EqualError(t, err, "not today")
		assert.Nil(t, r)
		require.NoError(t, pub.Publish(t.Context(), "out", "elsewhere"))
		assert.NotNil(t, p.link("other", wire.RoleSender))
		require.ErrorIs(t, pub.Publish(t.Context(), "out", "alone"), amqpflow.ErrNotSent)
		_, err = pub.Send(t.Context(), "out", "alone")
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		transfers := p.sent(wire.CodeTransfer)
		require.Len(t, transfers, 2)
		for _, f := range transfers {
			var m amqp.Message
			require.NoError(t, m.UnmarshalBinary(f.perf.(*wire.Transfer).Payload))
			assert.Equal(t, map[string]any{"traced": true}, m.ApplicationProperties)
			assert.NotNil(t, m.Properties.MessageID, "it got the whole message")
		}
		require.NoError(t, pub.Flush(within(t, time.Second)), "what was not sent is not waited for")
		shutdown(t, b)
	})
}
