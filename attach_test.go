package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestSubscription_attachSaysWhatTheOptionsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.open.Properties = wire.Map{{Key: wire.Symbol("product"), Value: "RabbitMQ"}, {Key: wire.Symbol("version"), Value: "4.3.0"}}
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{
			ContainerID: "me", Properties: map[string]any{"product": "mine"}, Logger: book.logger(),
		})
		b.Subscribe("a b", accepting, &amqpflow.SubscribeOptions{LinkProperties: map[string]any{"prio": int64(5)}})
		p.connect(b)
		require.NoError(t, b.Publisher().Publish(t.Context(), "topic:prices", "x"))
		open := p.sent(wire.CodeOpen)[0].perf.(*wire.Open)
		assert.Equal(t, "me", open.ContainerID)
		assert.Equal(t, "mine", open.Properties.Get("product"))
		receiver := p.link("/queues/a%20b", wire.RoleReceiver).attach
		assert.Equal(t, int64(5), receiver.Properties.Get("prio"))
		assert.Empty(t, receiver.Source.Capabilities)
		assert.Equal(t, wire.RcvFirst, receiver.RcvSettleMode)
		assert.Zero(t, receiver.MaxMessageSize, "never announced: we decide, not the peer")
		p.link("/exchanges/amq.topic/prices", wire.RoleSender)
		book.assertLine(t, "level=INFO", "connected", `peer="RabbitMQ 4.3.0"`, "container=scripted")
		book.assertLine(t, "level=INFO", "attached", `address="a b"`)
		shutdown(t, b)
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		b.Subscribe("orders", accepting)
		b.Subscribe("topic:prices", accepting)
		b.Subscribe("raw:node", accepting)
		p.connect(b)
		assert.Equal(t, []wire.Symbol{"queue"}, p.link("orders", wire.RoleReceiver).attach.Source.Capabilities)
		assert.Equal(t, []wire.Symbol{"topic"}, p.link("prices", wire.RoleReceiver).attach.Source.Capabilities)
		assert.Empty(t, p.link("node", wire.RoleReceiver).attach.Source.Capabilities)
		shutdown(t, b)
	})
}

func TestBroker_topicToReceiveFromIsUnsupportedByRabbitMQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Dialect: amqpflow.DialectRabbitMQ})
		b.Subscribe("topic:prices", accepting)
		err := b.ConnectInProcess(t.Context(), p.dial)
		require.ErrorIs(t, err, amqpflow.ErrUnsupported)
		var refused *amqpflow.AttachError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, amqpflow.Address("topic:prices"), refused.Address)
		synctest.Wait()
		assert.Empty(t, p.sent(wire.CodeAttach))
		assertGone(t, p)
	})
}

// What only the peer's OPEN tells of a registration is as final as what is wrong
// with it before.
func TestBroker_connectRetryIsNotForWhatNoPeerWillChange(t *testing.T) {
	for name, tc := range map[string]struct {
		addr amqpflow.Address
		opts *amqpflow.SubscribeOptions
		want func(*testing.T, error)
	}{
		"no form for the address": {"topic:prices", nil, func(t *testing.T, err error) {
			require.ErrorIs(t, err, amqpflow.ErrUnsupported)
		}},
		"dead letters to itself": {"orders", &amqpflow.SubscribeOptions{DeadLetter: "/queues/orders"}, func(t *testing.T, err error) {
			var bad *amqpflow.OptionError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, "SubscribeOptions.DeadLetter", bad.Field)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := newPeers(t, nil)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{Dialect: amqpflow.DialectRabbitMQ, ConnectRetry: true})
				sub := b.Subscribe(tc.addr, accepting, tc.opts)
				b.Subscribe("others", accepting)
				started := time.Now()
				err := b.ConnectInProcess(within(t, time.Hour), ps.dial)
				assert.Zero(t, time.Since(started))
				tc.want(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				var refused *amqpflow.AttachError
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, tc.addr, refused.Address)
				assert.Len(t, ps.dialed(), 1)
				assert.Equal(t, amqpflow.Registered, sub.State())
			})
		})
	}
}
