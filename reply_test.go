package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// asked is a request's message.
func asked(body string, properties wire.Properties) []byte {
	return wire.AppendData(properties.Append(nil), []byte(body))
}

// serveReplies connects a broker with one reply subscription to "orders" to a
// new peer.
func serveReplies[R any](t *testing.T, fn amqpflow.ReplyHandler[string, R], so *amqpflow.SubscribeOptions, bo ...*amqpflow.Options) (*peer, *amqpflow.Broker, *amqpflow.Subscription) {
	t.Helper()
	p := newPeer(t)
	b := amqpflow.New("amqp://localhost", bo...)
	sub := amqpflow.SubscribeReply(b, "orders", fn, so)
	p.connect(b)
	return p, b, sub
}

func echo(_ context.Context, m *amqpflow.Message[string]) (string, error) {
	return "re: " + m.Body, nil
}

// replyIn is the message of a transfer frame.
func replyIn(t *testing.T, f frame) *amqp.Message {
	t.Helper()
	m := new(amqp.Message)
	require.NoError(t, m.UnmarshalBinary(f.perf.(*wire.Transfer).Payload))
	return m
}

func TestSubscribeReply_correlationIDIsTheRequestsElseItsMessageID(t *testing.T) {
	uuid := wire.UUID{1, 15: 2}
	for name, tc := range map[string]struct {
		properties wire.Properties
		want       any
	}{
		"string":                {wire.Properties{CorrelationID: "c", MessageID: "m"}, "c"},
		"message-id string":     {wire.Properties{MessageID: "m"}, "m"},
		"ulong":                 {wire.Properties{CorrelationID: uint64(1) << 63}, uint64(1) << 63},
		"message-id ulong zero": {wire.Properties{MessageID: uint64(0)}, uint64(0)},
		"uuid":                  {wire.Properties{CorrelationID: uuid, MessageID: uint64(1)}, amqp.UUID(uuid)},
		"message-id uuid":       {wire.Properties{MessageID: uuid}, amqp.UUID(uuid)},
		"binary":                {wire.Properties{CorrelationID: []byte{0, 1}}, []byte{0, 1}},
		"message-id binary":     {wire.Properties{MessageID: []byte{2}}, []byte{2}},
		"none":                  {wire.Properties{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, _ := serveReplies(t, echo, nil)
				tc.properties.ReplyTo = "replies"
				p.deliver("orders", asked("x", tc.properties))
				m := replyIn(t, p.awaitCode(wire.CodeTransfer))
				assert.Equal(t, tc.want, m.Properties.CorrelationID)
				assert.Equal(t, "re: x", string(m.GetData()))
				assert.Equal(t, "replies", p.link("replies", wire.RoleSender).address)
				shutdown(t, b)
			})
		})
	}
}

func TestSubscribeReply_optionReplyToWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serveReplies(t, echo, &amqpflow.SubscribeOptions{ReplyTo: "option"})
		p.deliver("orders", asked("a", wire.Properties{ReplyTo: "request"}))
		p.deliver("orders", asked("b", wire.Properties{}))
		p.awaitCode(wire.CodeTransfer)
		p.awaitCode(wire.CodeTransfer)
		quiet()
		for _, text := range p.trace() {
			assert.NotContains(t, text, "sender request")
		}
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}, 1: {wire.StateAccepted}}, p.outcomes())
		shutdown(t, b)
	})
}

func TestSubscribeReply_missingReplyAddressRejectsBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer, errs := errorsObserved()
		p, b, sub := serveReplies(t, func(context.Context, *amqpflow.Message[string]) (string, error) {
			t.Error("called")
			return "", nil
		}, nil, &amqpflow.Options{Observer: observer})
		p.deliver("orders", asked("x", wire.Properties{MessageID: "m"}))
		d := p.awaitDisposition()
		require.Equal(t, wire.StateRejected, d.State.Kind)
		assert.Equal(t, wire.Symbol(amqp.ErrCondPreconditionFailed), d.State.Error.Condition)
		assert.NotEmpty(t, d.State.Error.Description)
		require.Len(t, errs.all(), 1)
		require.ErrorContains(t, errs.all()[0], "orders")
		assert.Equal(t, amqpflow.Attached, sub.State())
		shutdown(t, b)
	})
}

// The request is settled after the reply's outcome, and by it.
func TestSubscribeReply_settlesByTheReplysOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		state wire.State
		want  wire.StateKind
	}{
		"accepted": {wire.State{Kind: wire.StateAccepted}, wire.StateAccepted},
		"rejected": {wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "acme:full"}}, wire.StateModified},
		"released": {wire.State{Kind: wire.StateReleased}, wire.StateModified},
		"modified": {wire.State{Kind: wire.StateModified}, wire.StateModified},
		"none":     {wire.State{}, wire.StateModified},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failure error
				p, b, _ := serveReplies(t, echo, &amqpflow.SubscribeOptions{ReplyTo: "replies", RetryMin: -1, OnFailure: func(_ *amqpflow.Delivery, err error) error {
					failure = err
					return err
				}})
				transfers := make(chan frame, 1)
				p.on(wire.CodeTransfer, func(f frame) bool { transfers <- f; return true })
				p.deliver("orders", data("x"))
				f := <-transfers
				quiet()
				assert.Empty(t, p.outcomes(), "not before the reply's outcome")
				p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, tc.state)
				quiet()
				assert.Equal(t, map[uint32][]wire.StateKind{0: {tc.want}}, p.outcomes())
				var refused *amqpflow.PublishError
				switch name {
				case "accepted":
					require.NoError(t, failure)
				case "none":
					require.ErrorIs(t, failure, amqpflow.ErrUncertain)
				default:
					require.ErrorAs(t, failure, &refused)
				}
				shutdown(t, b)
			})
		})
	}
}

func TestSubscribeReply_whatCannotBePublishedIsARetry(t *testing.T) {
	t.Run("encode", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, b, _ := serveReplies(t, func(context.Context, *amqpflow.Message[string]) (func(), error) { return func() {}, nil },
				&amqpflow.SubscribeOptions{ReplyTo: "replies"})
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
			assert.Empty(t, p.sent(wire.CodeTransfer))
			shutdown(t, b)
		})
	})
	t.Run("attach refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, b, _ := serveReplies(t, echo, &amqpflow.SubscribeOptions{ReplyTo: "replies"})
			p.on(wire.CodeAttach, func(f frame) bool {
				a := f.perf.(*wire.Attach)
				p.refuse(f.channel, a, &wire.Error{Condition: "amqp:not-found"})
				return true
			})
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
			p.on(wire.CodeAttach, func(frame) bool { return false })
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind, "the address is tried again")
			shutdown(t, b)
		})
	})
	t.Run("link lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, b, _ := serveReplies(t, echo, &amqpflow.SubscribeOptions{ReplyTo: "replies"})
			p.on(wire.CodeTransfer, func(f frame) bool {
				p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Transfer).Handle, Closed: true})
				return true
			})
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
			p.on(wire.CodeTransfer, func(frame) bool { return false })
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
			shutdown(t, b)
		})
	})
}

func TestSubscribeReply_failedHandlerSendsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serveReplies(t, func(context.Context, *amqpflow.Message[string]) (string, error) { return "reply", errors.New("x") },
			&amqpflow.SubscribeOptions{ReplyTo: "replies"})
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
		assert.Empty(t, p.sent(wire.CodeTransfer))
		shutdown(t, b)
	})
}

// A request that the handler has settled keeps that settlement; the reply goes
// out all the same.
func TestSubscribeReply_ownSettlementWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serveReplies(t, func(ctx context.Context, m *amqpflow.Message[string]) (string, error) {
			return "reply", m.Settle(ctx, amqpflow.Release())
		}, &amqpflow.SubscribeOptions{ReplyTo: "replies"})
		p.deliver("orders", data("x"))
		p.awaitCode(wire.CodeTransfer)
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateReleased}}, p.outcomes())
		shutdown(t, b)
	})
}

// Each value is encoded as Publish encodes it.
// The first reply is half out when its handler's context ends: the data plane
// keeps its bytes until the peer takes the rest. The worker's later replies
// must not be written into them.
