package amqptest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// received are the message-ids of the next n messages.
func received(t *testing.T, rcv *amqp.Receiver, n int) []any {
	t.Helper()
	ids := make([]any, n)
	for i := range ids {
		m := receive(t, rcv)
		ids[i] = m.Properties.MessageID
		require.NoError(t, rcv.AcceptMessage(t.Context(), m))
	}
	return ids
}

func TestFault_deliversTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(4)...))
		require.NoError(t, s.Fault(Duplicate("orders").After(1).Times(2)))
		rcv := manual(t, connect(t, s, nil), "orders", 10)
		assert.Equal(t, []any{"0", "1", "1", "2", "3", "3"}, received(t, rcv, 6))
		synctest.Wait()
		assert.Len(t, s.Settlements("orders"), 6)
		assert.Empty(t, bodies(t, s))

		require.NoError(t, s.Fault(Duplicate("orders").Always()))
		require.NoError(t, s.Put("orders", text("4")))
		assert.Equal(t, []any{"4", "4"}, received(t, rcv, 2), "a copy is not copied")
	})
}

func TestFault_deliversOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(5)...))
		require.NoError(t, s.Fault(Reorder("orders").After(1)))
		rcv := manual(t, connect(t, s, nil), "orders", 10)
		assert.Equal(t, []any{"0", "2", "1", "3", "4"}, received(t, rcv, 5))
	})
}

func TestFault_deliversBeyondTheCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(5)...))
		require.NoError(t, s.Fault(OverSend("orders").Times(2)))
		r := dialRaw(t, s).opened().receiving(2)
		for id := range 4 {
			assert.Equal(t, uint32(id), r.awaitTransfer().DeliveryID.Value)
		}
		synctest.Wait()
		assert.Equal(t, []string{"4"}, bodies(t, s))

		require.NoError(t, s.Put("other", numbered(2)...))
		require.NoError(t, s.Fault(OverSend("other")))
		rcv := manual(t, connect(t, s, nil), "other", 1)
		receive(t, rcv)
		receive(t, rcv) // go-amqp does not check
	})
}

func TestFault_takesDeliveriesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(2)...))
		require.NoError(t, s.Fault(TakeBack("orders", amqpflow.Modified).Delay(30*time.Minute)))
		r := dialRaw(t, s).opened().receiving(2)
		r.awaitTransfer()
		start := time.Now()
		for id := range uint32(2) {
			d := r.awaitDisposition()
			assert.Equal(t, wire.Disposition{
				Role: wire.RoleSender, First: id, Last: id, Settled: true,
				State: wire.State{Kind: wire.StateModified, DeliveryFailed: true},
			}, d)
		}
		assert.Equal(t, 30*time.Minute, time.Since(start))
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Last: 1, Settled: true, State: wire.State{Kind: wire.StateAccepted}})
		synctest.Wait()
		ms := s.Messages("orders")
		require.Len(t, ms, 2, "what crossed means nothing")
		assert.Equal(t, uint32(1), ms[0].Header.DeliveryCount)

		require.NoError(t, s.Fault(TakeBack("orders", amqpflow.Released)))
		rcv := manual(t, connect(t, s, nil), "orders", 3)
		assert.Equal(t, uint32(1), receive(t, rcv).Header.DeliveryCount)
		assert.Equal(t, uint32(1), receive(t, rcv).Header.DeliveryCount)
		assert.Equal(t, uint32(1), receive(t, rcv).Header.DeliveryCount, "released counts no attempt")
	})
}

func TestFault_takesEachMessageBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		require.NoError(t, s.Fault(TakeBack("orders", amqpflow.Modified).Always()))
		manual(t, connect(t, s, nil), "orders", 100)
		synctest.Wait()
		assert.Equal(t, 3, s.Unsettled("orders"))
		s.Heal()
		require.NoError(t, s.Fault(Detach("orders", "", "")))
		for _, m := range s.Messages("orders") {
			assert.Equal(t, uint32(1), m.Header.DeliveryCount)
		}
	})
}
