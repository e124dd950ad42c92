package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// The tests named after field reports: docs/field-reports.md has the table.

// Nil for a message that the peer has not accepted, whatever the verb.
func TestFieldReport_F1_sendOfAnUnacceptedMessageIsNoSuccess(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state wire.State
		is    func(error) bool
	}{
		{"released", wire.State{Kind: wire.StateReleased}, isRefused(amqpflow.Released)},
		{"modified", wire.State{Kind: wire.StateModified}, isRefused(amqpflow.Modified)},
		{"rejected without an error", wire.State{Kind: wire.StateRejected}, isRefused(amqpflow.Rejected)},
		{"no state", wire.State{}, func(err error) bool { return errors.Is(err, amqpflow.ErrUncertain) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost")
				replied := make(chan error, 1)
				amqpflow.SubscribeReply(b, "requests", func(context.Context, *amqpflow.Message[string]) (string, error) {
					return "answer", nil
				}, &amqpflow.SubscribeOptions{ReplyTo: "out", OnFailure: func(_ *amqpflow.Delivery, err error) error {
					replied <- err
					return err
				}})
				p.connect(b)
				p.on(wire.CodeTransfer, p.answersWith(tc.state, true))
				receipt, err := b.Publisher().Send(t.Context(), "out", "x")
				require.NoError(t, err)
				assert.True(t, tc.is(receipt.Wait(t.Context())), "%v", receipt.Wait(t.Context()))
				assert.True(t, tc.is(b.Publisher().Publish(t.Context(), "out", "x")))
				p.deliver("requests", data("a request"))
				assert.True(t, tc.is(<-replied))
				assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind, "the request is retried")
				p.on(wire.CodeTransfer, func(frame) bool { return false })
				require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"), "the link goes on")
				shutdown(t, b)
			})
		})
	}
}

func isRefused(want amqpflow.Outcome) func(error) bool {
	return func(err error) bool {
		refused, ok := errors.AsType[*amqpflow.PublishError](err)
		return ok && refused.Outcome == want && !errors.Is(err, amqpflow.ErrUncertain)
	}
}

// A peer that holds publishers back, by its session window (F2) or by link
// credit (F3): every call returns on time with its context's error, nothing of
// it was sent, and publishing goes on once the peer lets it.
func TestFieldReport_B12_heldBackPublishesKeepTheirContexts(t *testing.T) {
	for name, tc := range map[string]struct{ window, credit uint32 }{
		"session window 0": {window: 0, credit: 100},
		"link credit 0":    {window: 100, credit: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				p.holdBack(tc.window, tc.credit)
				b := amqpflow.New("amqp://localhost")
				p.connect(b)
				cancelled, cancel := context.WithCancel(t.Context())
				started := time.Now()
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						ctx, want := within(t, 300*time.Millisecond), context.DeadlineExceeded
						if i == 3 {
							ctx, want = cancelled, context.Canceled
						}
						var err error
						if i%2 == 0 {
							err = b.Publisher().Publish(ctx, "out", "x")
						} else {
							_, err = b.Publisher().Send(ctx, "out", "x")
						}
						assert.ErrorIs(t, err, want)
						assert.ErrorIs(t, err, amqpflow.ErrNotSent)
					})
				}
				time.AfterFunc(100*time.Millisecond, cancel)
				wg.Wait()
				assert.Equal(t, 300*time.Millisecond, time.Since(started), "on time to the instant")
				assert.Empty(t, p.sent(wire.CodeTransfer))
				require.NoError(t, b.Ready(), "no context kills the connection")

				p.flow(p.link("out", wire.RoleSender).channel, p.link("out", wire.RoleSender).attach.Handle, 100, 100)
				require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
				assert.Len(t, p.sent(wire.CodeAttach), 1, "over the same link")
				shutdown(t, b)
			})
		})
	}
}

// A peer that announces no limit and detaches the link over a message that is
// too large: that message is not repeated, and the others get true answers.
func TestFieldReport_B34_oversizedPublishPoisonsNoOther(t *testing.T) {
	const tooLarge = 1000
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		exceeded := &wire.Error{Condition: wire.Symbol(amqp.ErrCondMessageSizeExceeded), Description: "at most 1000"}
		detached := map[string]bool{} // links by channel and handle; the reader's alone
		p.on(wire.CodeAttach, func(f frame) bool {
			delete(detached, fmt.Sprint(f.channel, f.perf.(*wire.Attach).Handle))
			return false
		})
		p.on(wire.CodeTransfer, func(f frame) bool {
			sent := f.perf.(*wire.Transfer)
			key := fmt.Sprint(f.channel, sent.Handle)
			if detached[key] {
				return true // what crossed the detach
			}
			if len(sent.Payload) <= tooLarge {
				return false
			}
			detached[key] = true
			p.send(f.channel, &wire.Detach{Handle: sent.Handle, Closed: true, Error: exceeded})
			return true
		})
		var wg sync.WaitGroup
		answers := make([]error, 100)
		for i := range answers {
			wg.Go(func() {
				body := make([]byte, 10)
				if i == 50 {
					body = make([]byte, tooLarge+1)
				}
				receipt, err := pub.Send(t.Context(), "out", body)
				if err == nil {
					err = receipt.Wait(t.Context())
				}
				answers[i] = err
			})
		}
		wg.Wait()
		for i, err := range answers {
			if i == 50 {
				remote, ok := errors.AsType[*amqp.Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, amqp.ErrCondMessageSizeExceeded, remote.Condition)
				continue
			}
			assert.True(t, err == nil || errors.Is(err, amqpflow.ErrUncertain) || errors.Is(err, amqpflow.ErrNotSent), "%v", err)
		}
		large := 0
		for _, f := range p.sent(wire.CodeTransfer) {
			if len(f.perf.(*wire.Transfer).Payload) > tooLarge {
				large++
			}
		}
		assert.Equal(t, 1, large, "it was not sent again")
		for range 10 {
			require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		}
		shutdown(t, b)
	})
}
