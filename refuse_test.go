package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestSubscription_refusesWhatNoHandlerMaySee(t *testing.T) {
	value := func(v any) []byte {
		b, err := wire.AppendAMQPValue(nil, v)
		require.NoError(t, err)
		return b
	}
	sequence, err := wire.AppendSequence(nil, wire.List{"a"})
	require.NoError(t, err)
	for _, tc := range []struct {
		name      string
		payload   []byte
		condition wire.Symbol
		reported  any
	}{
		{"a map", value(wire.Map{{Key: "a", Value: "b"}}), "amqp:not-implemented", new(*amqpflow.BodyError)},
		{"a number", value(int64(1)), "amqp:not-implemented", new(*amqpflow.BodyError)},
		{"a sequence", sequence, "amqp:not-implemented", new(*amqpflow.BodyError)},
		{"noise", []byte("no AMQP message at all"), "amqp:decode-error", new(*amqpflow.UnreadableError)},
		{"a section cut short", data("hello")[:6], "amqp:decode-error", new(*amqpflow.UnreadableError)},
		{"a body above the limit", data(string(make([]byte, 101))), "amqp:link:message-size-exceeded", new(*amqpflow.MessageTooLargeError)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook)
				reports := make(chan error, 10)
				var bodies []string
				p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					bodies = append(bodies, string(d.Data()))
					return nil
				}, &amqpflow.SubscribeOptions{MaxMessageSize: 100, Credit: 2}, &amqpflow.Options{
					Logger: book.logger(), Observer: &amqpflow.Observer{Error: func(err error) { reports <- err }},
				})
				for range 5 { // more than the window
					p.deliver("orders", tc.payload)
					d := p.awaitDisposition()
					assert.True(t, d.Settled)
					assert.Equal(t, wire.StateRejected, d.State.Kind)
					require.NotNil(t, d.State.Error)
					assert.Equal(t, tc.condition, d.State.Error.Condition)
					assert.NotEmpty(t, d.State.Error.Description)
					require.ErrorAs(t, <-reports, tc.reported)
				}
				p.deliver("orders", data("next"))
				assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
				assert.Equal(t, []string{"next"}, bodies)
				assert.Equal(t, amqpflow.Attached, sub.State())
				require.NoError(t, b.Ready())
				stats := sub.Stats()
				assert.Equal(t, uint64(5), stats.Rejected)
				assert.Equal(t, uint64(6), stats.Received)
				book.assertLine(t, "level=WARN", "delivery rejected", "address=orders", "condition="+string(tc.condition))
				shutdown(t, b)
			})
		})
	}
}

func TestSubscription_readsStringAndBinaryValuesAsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := make(chan string, 1)
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error { bodies <- string(d.Data()); return nil }, nil)
		for _, tc := range []struct {
			v    any
			want string
		}{{"text", "text"}, {[]byte("bin"), "bin"}, {wire.Symbol("sym"), "sym"}, {nil, ""}} {
			payload, err := wire.AppendAMQPValue(nil, tc.v)
			require.NoError(t, err)
			p.deliver("orders", payload)
			assert.Equal(t, tc.want, <-bodies, "%T", tc.v)
		}
		p.deliver("orders", (&wire.Header{}).Append(nil)) // no body
		assert.Empty(t, <-bodies)
		shutdown(t, b)
	})
}
