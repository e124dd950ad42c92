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

// Each message has a receipt of its own: what the first one's outcome counts out
// is the first one.
func TestPublishMiddleware_passesASendOnMoreThanOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observed := make(chan amqpflow.Address, 10)
		p, b := sender(t, &amqpflow.Options{
			PublishMiddleware: []amqpflow.PublishMiddleware{func(next amqpflow.PublishFunc) amqpflow.PublishFunc {
				return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
					if err := next(ctx, "audit", m); err != nil {
						return err
					}
					return next(ctx, addr, m)
				}
			}},
			Observer: &amqpflow.Observer{Published: func(a amqpflow.Address, _ amqpflow.Outcome, _ time.Duration, _ error) { observed <- a }},
		})
		pub := b.Publisher()
		r := send(t, b, "out", "x")
		flushed := make(chan error, 1)
		go func() { flushed <- pub.Flush(t.Context()) }()
		p.confirm(1, wire.State{Kind: wire.StateReleased})
		assert.Equal(t, amqpflow.Address("audit"), <-observed)
		synctest.Wait()
		assert.False(t, known(r), "it is that of the last one")
		assert.Empty(t, flushed, "both are waited for")
		p.confirm(1, stateOK)
		assert.Equal(t, amqpflow.Address("out"), <-observed)
		require.NoError(t, r.Wait(t.Context()))
		require.NoError(t, <-flushed)

		p.on(wire.CodeTransfer, func(frame) bool { return false })
		for range 2 {
			require.NoError(t, pub.Publish(within(t, time.Minute), "out", "x"), "neither address waits for anything")
		}
		shutdown(t, b)
	})
}

func TestPublishMiddleware_receiptIsThatOfTheLastMessageThatWasQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t, &amqpflow.Options{
			PublishMiddleware: []amqpflow.PublishMiddleware{func(next amqpflow.PublishFunc) amqpflow.PublishFunc {
				return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
					err := next(ctx, addr, m)
					ended, cancel := context.WithCancel(ctx)
					cancel()
					assert.ErrorIs(t, next(ended, addr, m), amqpflow.ErrNotSent)
					return err
				}
			}},
		})
		r := send(t, b, "out", "x")
		p.confirm(1, stateOK)
		require.NoError(t, r.Wait(within(t, time.Minute)))
		require.NoError(t, b.Publisher().Flush(within(t, time.Minute)))
		shutdown(t, b)
	})
}
