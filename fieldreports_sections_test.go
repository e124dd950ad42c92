package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// as delivers payload to a handler of T and returns the body that it got, nil
// if it was not called, and the outcome.
func as[T any](t *testing.T, payload []byte) (body *T, outcome wire.State) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[T]) error {
			body = &m.Body
			return nil
		})
		p.connect(b)
		p.deliver("orders", payload)
		outcome = p.awaitDisposition().State
		shutdown(t, b)
	})
	return body, outcome
}

func assertBody[T any](t *testing.T, what string, payload []byte, want T) {
	t.Helper()
	body, outcome := as[T](t, payload)
	assert.Equal(t, wire.StateAccepted, outcome.Kind, "%s as %T", what, want)
	if assert.NotNil(t, body, "%s as %T", what, want) {
		assert.Equal(t, want, *body, "%s as %T", what, want)
	}
}

// assertRefused is for what has no T: rejected with the condition, and never a
// zero value.
func assertRefused[T any](t *testing.T, what string, payload []byte, condition amqp.ErrCond) {
	t.Helper()
	body, outcome := as[T](t, payload)
	assert.Nil(t, body, "%s as %T", what, new(T))
	if assert.Equal(t, wire.StateRejected, outcome.Kind, "%s as %T", what, new(T)) {
		assert.Equal(t, wire.Symbol(condition), outcome.Error.Condition, "%s as %T", what, new(T))
	}
}

func valueOf(t *testing.T, v any) []byte {
	t.Helper()
	payload, err := wire.AppendAMQPValue(nil, v)
	require.NoError(t, err)
	return payload
}

// A text is a text, whichever section it stands in.
func TestFieldReport_B26_textInEitherSection(t *testing.T) {
	const text = `{"item":"lamp","count":3}`
	order := Order{Item: "lamp", Count: 3}
	parsed := map[string]any{"item": "lamp", "count": 3.0}
	for what, payload := range map[string][]byte{
		"a value that is a string": valueOf(t, text),
		"a value that is a binary": valueOf(t, []byte(text)),
		"data":                     data(text),
		"data that says JSON":      append((&wire.Properties{ContentType: "application/json"}).Append(nil), data(text)...),
		"two data sections":        append(data(text[:5]), data(text[5:])...),
	} {
		assertBody(t, what, payload, text)
		assertBody(t, what, payload, []byte(text))
		assertBody(t, what, payload, order)
		assertBody(t, what, payload, &order)
		assertBody(t, what, payload, parsed)
		assertBody[any](t, what, payload, parsed)
	}
	for what, v := range map[string]any{
		"a map": wire.Map{{Key: "a", Value: int64(1)}}, "a mixed map": wire.Map{{Key: "a", Value: int64(1)}, {Key: int64(2), Value: "b"}},
		"an empty map": wire.Map{}, "a list": wire.List{int64(1)}, "a number": int64(5), "a bool": true, "a time": time.UnixMilli(1).UTC(),
	} {
		assertRefused[string](t, what, valueOf(t, v), amqp.ErrCondNotImplemented)
		assertRefused[[]byte](t, what, valueOf(t, v), amqp.ErrCondNotImplemented)
		assertRefused[Order](t, what, valueOf(t, v), amqp.ErrCondNotImplemented)
		assertRefused[any](t, what, valueOf(t, v), amqp.ErrCondNotImplemented)
	}
	assertRefused[Order](t, "text that is no JSON", data("hello"), amqp.ErrCondDecodeError)
	assertRefused[any](t, "text that is no JSON", valueOf(t, "hello"), amqp.ErrCondDecodeError)
	assertRefused[Order](t, "another type", data(`["lamp"]`), amqp.ErrCondDecodeError)
}

// Four kinds of nothing, for every kind of handler.
func TestFieldReport_B28_nullAndAbsentBodies(t *testing.T) {
	for what, payload := range map[string][]byte{
		"no section at all":    {},
		"only a header":        (&wire.Header{}).Append(nil),
		"a value of null":      octets(t, "00537740"),
		"data that is null":    octets(t, "00537540"),
		"data of zero bytes":   octets(t, "005375a000"),
		"an empty string":      valueOf(t, ""),
		"an empty binary":      valueOf(t, []byte{}),
		"data sections, empty": octets(t, "005375a000 005375a000"),
	} {
		assertBody(t, what, payload, "")
		assertBody[*Order](t, what, payload, nil)
		assertBody[any](t, what, payload, nil)
		assertBody[map[string]any](t, what, payload, nil)
		assertRefused[Order](t, what, payload, amqp.ErrCondDecodeError)
		assertRefused[int](t, what, payload, amqp.ErrCondDecodeError)
		body, _ := as[[]byte](t, payload)
		if assert.NotNil(t, body, what) {
			assert.Empty(t, *body, what)
		}
	}
}

// Whatever is published has one body, and comes back as the nil that it was.
func TestFieldReport_B28_publishedNilsHaveABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		for _, v := range []any{
			[]byte(nil), "", (*Order)(nil), map[string]any(nil), nil, &amqp.Message{},
			&amqp.Message{Properties: &amqp.MessageProperties{MessageID: "only properties"}},
		} {
			require.NoError(t, pub.Publish(t.Context(), "out", v), "%T", v)
			transfers := p.sent(wire.CodeTransfer)
			var sections wire.Sections
			require.NoError(t, sections.Parse(transfers[len(transfers)-1].perf.(*wire.Transfer).Payload))
			assert.Equal(t, wire.BodyData, sections.Body, "%T", v)
			assert.Equal(t, 1, sections.DataCount, "%T", v)
			if len(sections.Data) > 0 {
				assert.Equal(t, "null", string(sections.Data), "%T", v)
			}
		}
		require.ErrorAs(t, pub.Publish(t.Context(), "out", &amqp.Message{Value: (*string)(nil)}), new(*amqpflow.EncodeError),
			"go-amqp would panic")
		shutdown(t, b)
	})
}
