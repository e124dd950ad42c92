package amqpflow_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// octets are written as the field reports write them.
func octets(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

// 1000 messages for a typed handler, 30 of them none: the others are handled,
// and whoever looks after failures sees each of the 30 once, with its body.
func TestFieldReport_B23_badPayloadsStopNobody(t *testing.T) {
	const total, bad = 1000, 30
	contentTypes := []string{"", "application/json", "application/json; charset=utf-8", "application/vnd.shop+json", "text/plain", "application/octet-stream"}
	malformed := []string{`["a list"]`, `{"item": "la`, "", "\xff\xfe{\x00", `{"count": "three"}`}
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer()
		var want []string
		for i := range total {
			m := amqp.NewMessage(fmt.Appendf(nil, `{"item": "lamp", "count": %d}`, i))
			m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint(i)}
			if contentType := contentTypes[i%len(contentTypes)]; contentType != "" {
				m.Properties.ContentType = &contentType
			}
			if i%(total/bad) == 0 && len(want) < bad {
				m.Data[0] = []byte(malformed[len(want)%len(malformed)])
				want = append(want, fmt.Sprintf("%d %s", i, m.Data[0]))
			}
			require.NoError(t, server.Put("orders", m))
		}
		handled := 0
		var failed []string
		b := amqpflow.New("amqp://localhost")
		sub := amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[Order]) error {
			handled++
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 20, OnFailure: func(d *amqpflow.Delivery, err error) error {
			assert.ErrorAs(t, err, new(*amqpflow.DecodeError))
			failed = append(failed, d.MessageID()+" "+string(d.Data()))
			return &amqpflow.OutcomeError{Outcome: amqpflow.Rejected, Condition: amqp.ErrCondDecodeError, Err: err}
		}})
		require.NoError(t, server.Connect(t.Context(), b))
		require.NoError(t, server.Idle(t.Context()))
		shutdown(t, b)
		assert.Equal(t, total-bad, handled)
		assert.Equal(t, want, failed)
		assert.Equal(t, uint64(bad), sub.Stats().Rejected)
		assert.Len(t, server.DeadLetters("orders"), bad)
		for _, s := range server.Settlements("orders") {
			if s.Outcome == amqpflow.Rejected {
				assert.Equal(t, amqp.ErrCondDecodeError, s.Error.Condition)
			}
		}
		require.NoError(t, server.Close())
	})
}

// dead is a message as RabbitMQ dead-letters it: an annotation tells of each
// death in a map.
func dead(t *testing.T) []byte {
	t.Helper()
	payload, err := wire.AppendSection(nil, wire.CodeMessageAnnotations, wire.Map{{Key: wire.Symbol("x-opt-deaths"), Value: wire.Array{
		Code: 0xd1, Elems: []any{
			wire.Map{{Key: wire.Symbol("queue"), Value: "orders"}, {Key: wire.Symbol("count"), Value: uint64(3)}},
			wire.Map{{Key: wire.Symbol("queue"), Value: "retries"}},
		},
	}}})
	require.NoError(t, err)
	return append(payload, data("a")...)
}

// What go-amqp cannot decode is handled where its body has bytes, else rejected
// once; the link lives, and so does the subscription beside it.
func TestFieldReport_B24_undecodableMessagesKillNoLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		reports := make(chan error, 100)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{Error: func(err error) { reports <- err }}})
		var bodies []string
		sub := b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
			bodies = append(bodies, string(d.Data()))
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 2})
		other := b.Subscribe("other", accepting)
		p.connect(b)
		deaths := hex.EncodeToString(dead(t))
		for _, tc := range []struct {
			name, payload string
			condition     wire.Symbol // "": handled
		}{
			{"P1 char", "005377 7300000041", "amqp:not-implemented"},
			{"P1 decimal64", "005377 84 0000000000000041", "amqp:not-implemented"},
			{"P1 array of lists", "005377 e0 06 01 c0 03 01 55 01", "amqp:not-implemented"},
			{"P1 symbolic descriptor", "00 a3 10 616d71703a646174613a62696e617279 a0 01 61", ""},
			{"P1 properties of 14 fields", "005373 c0 0f 0e" + strings.Repeat("40", 14) + "005375a000", "amqp:decode-error"},
			{"P1 header with a long as key", "005374 c1 05 02 55 01 55 01 005375a000", "amqp:decode-error"},
			{"P7 descriptors of 8 octets", "00 80 0000000000000070 c0 02 01 41 00 80 0000000000000073 45 00 80 0000000000000075 a0 01 61", ""},
			{"P10 two kinds of body", "005375a00161 005377a10162", "amqp:decode-error"},
			{"P10 a described value", "005377 00 a303666f6f a10161", "amqp:not-implemented"},
			{"P10 sequences", "005376c0050255015502 005376c00502a1017841", "amqp:not-implemented"},
			{"annotation of an array of maps", deaths, ""},
		} {
			p.deliver("orders", octets(t, tc.payload))
			d := p.awaitDisposition()
			if tc.condition == "" {
				assert.Equal(t, wire.StateAccepted, d.State.Kind, tc.name)
				assert.Equal(t, "a", bodies[len(bodies)-1], tc.name)
			} else if assert.Equal(t, wire.StateRejected, d.State.Kind, tc.name) {
				assert.Equal(t, tc.condition, d.State.Error.Condition, tc.name)
				require.Error(t, <-reports, tc.name)
			}
			p.deliver("orders", data("a good one"))
			assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind, tc.name)
			assert.Equal(t, "a good one", bodies[len(bodies)-1], tc.name)
		}
		assert.Empty(t, reports, "each once")
		assert.Len(t, p.sent(wire.CodeAttach), 2, "no link was lost")
		assert.Equal(t, amqpflow.Attached, sub.State())
		assert.Equal(t, amqpflow.Attached, other.State())
		shutdown(t, b)
	})
}

// Keys of annotations that the standard keeps to itself are refused before
// anything is sent; those that come are given as they are. A message that has
// them is not forwarded, by a rule, until they are taken out.
func TestFieldReport_B31_reservedAnnotationKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*amqpflow.Delivery
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error { got = append(got, d); return nil }, nil)
		pub := b.Publisher()
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		for _, key := range []any{"foo", uint64(1), int64(1), "X-foo"} {
			for _, v := range []any{"x", &amqp.Message{Value: "x", Annotations: amqp.Annotations{key: "v"}}} {
				var refused *amqpflow.EncodeError
				err := pub.Publish(t.Context(), "out", v, &amqpflow.PublishOptions{Annotations: amqp.Annotations{key: "v"}})
				require.ErrorAs(t, err, &refused, "%T", v)
				require.ErrorContains(t, err, fmt.Sprint(key))
			}
		}
		assert.Len(t, p.sent(wire.CodeTransfer), 1)
		for _, key := range []any{"x-foo", "x-opt-foo", amqp.Symbol("x-foo")} {
			require.NoError(t, pub.Publish(t.Context(), "out", "x", &amqpflow.PublishOptions{Annotations: amqp.Annotations{key: "v"}}))
		}

		for i, tc := range []struct {
			payload string
			key     any
			value   any
		}{
			{"005372 c1 05 02 53 01 a1 00", uint64(1), ""},
			{"005372 c1 05 02 55 01 a1 00", int64(1), ""},
			{"005372 c1 07 02 a1 01 61 a1 01 62", "a", "b"},
			{"005372 c1 07 02 a3 01 61 a1 01 62", "a", "b"},
		} {
			p.deliver("orders", octets(t, tc.payload+"005375a000"))
			p.awaitDisposition()
			assert.Equal(t, tc.value, got[i].Annotation(tc.key))
			m, err := got[i].AMQP()
			require.NoError(t, err)
			assert.Equal(t, tc.value, m.Annotations[tc.key])
			require.ErrorAs(t, pub.Publish(t.Context(), "out", m), new(*amqpflow.EncodeError))
			m.Annotations = nil
			require.NoError(t, pub.Publish(t.Context(), "out", m))
		}
		p.deliver("orders", dead(t))
		p.awaitDisposition()
		m, err := got[len(got)-1].AMQP()
		require.NoError(t, err)
		require.NoError(t, pub.Publish(t.Context(), "out", m), "whatever a broker has written into a key that is not reserved")
		shutdown(t, b)
	})
}

// What a header does not say has the standard's default, and what is written
// says everything.
//
// Spec: 3.2.1.
func TestFieldReport_B32_headerDefaultsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		for name, tc := range map[string]struct {
			o        *amqpflow.PublishOptions
			durable  bool
			priority uint8
		}{
			"nothing set":   {nil, true, 4},
			"only the TTL":  {&amqpflow.PublishOptions{TTL: 1e9}, true, 4},
			"only durable":  {&amqpflow.PublishOptions{NonDurable: true}, false, 4},
			"priority of 0": {&amqpflow.PublishOptions{Priority: new(uint8)}, true, 0},
			"priority of 9": {&amqpflow.PublishOptions{Priority: new(uint8(9))}, true, 9},
		} {
			require.NoError(t, pub.Publish(t.Context(), "out", "x", tc.o))
			transfers := p.sent(wire.CodeTransfer)
			var sections wire.Sections
			require.NoError(t, sections.Parse(transfers[len(transfers)-1].perf.(*wire.Transfer).Payload))
			assert.True(t, sections.HasHeader, name)
			assert.Equal(t, tc.durable, sections.Header.Durable, name)
			assert.Equal(t, tc.priority, sections.Header.Priority, name)
			assert.Zero(t, sections.Header.DeliveryCount, name)
			assert.False(t, sections.Header.FirstAcquirer, name)
		}
		shutdown(t, b)
	})
	synctest.Test(t, func(t *testing.T) { // a header without fields, as it comes
		var got *amqpflow.Delivery
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error { got = d; return nil }, nil)
		p.deliver("orders", octets(t, "005370 45 005375a00161"))
		p.awaitDisposition()
		m, err := got.AMQP()
		require.NoError(t, err)
		assert.Equal(t, uint8(4), m.Header.Priority)
		assert.False(t, m.Header.Durable)
		assert.Equal(t, 1, got.Attempt())
		shutdown(t, b)
	})
}
