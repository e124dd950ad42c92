package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestDelivery_secondSettlementIsErrSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliveries := make(chan *amqpflow.Delivery, 1)
		p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			require.NoError(t, d.Settle(ctx, amqpflow.Release()))
			require.ErrorIs(t, d.Accept(ctx), amqpflow.ErrSettled)
			deliveries <- d
			return errors.New("only logged")
		}, nil)
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateReleased, p.awaitDisposition().State.Kind)
		d := <-deliveries
		synctest.Wait()
		require.ErrorIs(t, d.Accept(t.Context()), amqpflow.ErrSettled)
		require.ErrorIs(t, d.Settle(t.Context(), errors.New("x")), amqpflow.ErrSettled)
		shutdown(t, b)
		require.ErrorIs(t, d.Accept(t.Context()), amqpflow.ErrSettled)
		assert.Len(t, p.sent(wire.CodeDisposition), 1)
	})
}

func TestDelivery_settlesWhateverItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			assert.NoError(t, d.Accept(ended))
			return nil
		}, nil)
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		shutdown(t, b)
	})
}

func TestDelivery_failFastBySettleEndsTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := errors.New("fatal")
		p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			return d.Settle(ctx, amqpflow.FailFast(fatal))
		}, nil)
		p.deliver("orders", data("x"))
		<-b.Done()
		require.Equal(t, fatal, b.Err())
		_ = b.Shutdown(within(t, time.Second))
	})
}

func TestDelivery_atMostOnceIsSettledAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			handled++
			require.ErrorIs(t, d.Accept(ctx), amqpflow.ErrSettled)
			require.ErrorIs(t, d.Settle(ctx, errors.New("x")), amqpflow.ErrSettled)
			if handled%2 == 0 {
				return errors.New("nobody can redeliver it")
			}
			return nil
		}, &amqpflow.SubscribeOptions{AtMostOnce: true, Credit: 4})
		assert.Equal(t, wire.SndSettled, p.link("orders", wire.RoleReceiver).attach.SndSettleMode)
		for range 50 { // far more than the window: its places are given back
			p.deliver("orders", data("x"))
		}
		synctest.Wait()
		assert.Equal(t, 50, handled)
		assert.Equal(t, uint64(50), sub.Stats().Received)
		shutdown(t, b)
		assert.Empty(t, p.sent(wire.CodeDisposition))
	})
}

func TestFailFast_ofAnAtMostOnceHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := errors.New("fatal")
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.FailFast(fatal)
		}, &amqpflow.SubscribeOptions{AtMostOnce: true})
		p.deliver("orders", data("x"))
		<-b.Done()
		require.Equal(t, fatal, b.Err())
		_ = b.Shutdown(within(t, time.Second))
	})
}

func TestDelivery_givesWhatTheMessageSays(t *testing.T) {
	when := time.UnixMilli(1_700_000_000_123).UTC()
	payload := (&wire.Header{Durable: true, Priority: 4, DeliveryCount: 2}).Append(nil)
	payload, err := wire.AppendSection(payload, wire.CodeMessageAnnotations, wire.Map{{Key: wire.Symbol("x-a"), Value: "v"}, {Key: uint64(7), Value: int8(1)}})
	require.NoError(t, err)
	payload = (&wire.Properties{
		MessageID: uint64(42), CorrelationID: wire.UUID{0xab}, Subject: "s", ContentType: "text/plain", GroupID: "g",
		ReplyTo: "/queues/r", CreationTime: when,
	}).Append(payload)
	payload, err = wire.AppendSection(payload, wire.CodeApplicationProperties, wire.Map{{Key: "n", Value: int32(5)}, {Key: "s", Value: wire.Symbol("sym")}})
	require.NoError(t, err)
	payload = wire.AppendData(wire.AppendData(payload, []byte("a")), []byte("b"))
	synctest.Test(t, func(t *testing.T) {
		deliveries := make(chan *amqpflow.Delivery, 2)
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error { deliveries <- d; return nil }, nil)
		p.deliver("orders", payload)
		p.deliver("orders", data(""))
		d := <-deliveries
		bare := <-deliveries
		shutdown(t, b) // it stays valid

		assert.Equal(t, amqpflow.Address("orders"), d.Address())
		assert.Equal(t, 3, d.Attempt())
		assert.Equal(t, "42", d.MessageID())
		assert.Equal(t, amqp.UUID{0xab}.String(), d.CorrelationID())
		assert.Equal(t, "s", d.Subject())
		assert.Equal(t, "text/plain", d.ContentType())
		assert.Equal(t, "g", d.GroupID())
		assert.Equal(t, amqpflow.Raw("/queues/r"), d.ReplyTo())
		assert.Equal(t, when, d.CreationTime())
		assert.Equal(t, int32(5), d.Header("n"))
		assert.Equal(t, "sym", d.Header("s"))
		assert.Nil(t, d.Header("absent"))
		assert.Equal(t, map[string]any{"n": int32(5), "s": "sym"}, d.Headers())
		assert.Equal(t, "v", d.Annotation("x-a"))
		assert.Equal(t, int8(1), d.Annotation(uint64(7)))
		assert.Nil(t, d.Annotation("absent"))
		assert.Equal(t, "ab", string(d.Data()))
		m, err := d.AMQP()
		require.NoError(t, err)
		assert.Equal(t, [][]byte{[]byte("a"), []byte("b")}, m.Data)
		again, err := d.AMQP()
		require.NoError(t, err)
		assert.Same(t, m, again, "decoded once")

		assert.Equal(t, 1, bare.Attempt())
		for _, text := range []string{bare.MessageID(), bare.CorrelationID(), bare.Subject(), bare.ContentType(), bare.GroupID(), string(bare.ReplyTo())} {
			assert.Empty(t, text)
		}
		assert.True(t, bare.CreationTime().IsZero())
		assert.Nil(t, bare.Header("n"))
		assert.Nil(t, bare.Headers())
		assert.Nil(t, bare.Annotation("x-a"))
		assert.Empty(t, bare.Data())
	})
}

// go-amqp decodes no char: the handler gets the delivery all the same.
func TestDelivery_whatGoAMQPCannotHoldIsAnErrorOnlyOfAMQP(t *testing.T) {
	payload, err := wire.AppendSection(nil, wire.CodeApplicationProperties, wire.Map{
		{Key: "c", Value: wire.Char('日')}, {Key: "d", Value: wire.Decimal32{1, 2, 3, 4}},
	})
	require.NoError(t, err)
	payload = wire.AppendData(payload, []byte("x"))
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			assert.Equal(t, '日', d.Header("c"))
			assert.Equal(t, [4]byte{1, 2, 3, 4}, d.Header("d"))
			assert.Equal(t, "x", string(d.Data()))
			_, err := d.AMQP()
			assert.ErrorContains(t, err, "amqpflow: decode message")
			return nil
		}, nil)
		p.deliver("orders", payload)
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		shutdown(t, b)
	})
}

// Deliveries that no handler may see: rejected with a condition, reported, the
// link stays attached and the next one is handled.
