package amqptest

import (
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestAnonymous_sendsEachMessageWhereItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		prices := subscription(t, ses, "prices", 1)
		snd := sender(t, ses, "", nil)
		for _, to := range []string{"orders", "invoices", "prices", "orders"} {
			m := text(to)
			m.Properties.To = new(to)
			require.NoError(t, snd.Send(t.Context(), m, nil))
		}
		assert.Equal(t, []string{"orders", "orders"}, bodies(t, s))
		assert.Len(t, s.Messages("invoices"), 1)
		assert.Equal(t, "prices", receive(t, prices).Properties.MessageID)
	})
}

func TestAnonymous_rejectsWhatHasNowhereToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd := sender(t, ses, "", nil)
		gone := dynamicReceiver(t, ses, 0)
		require.NoError(t, gone.Close(t.Context()))
		astray := text("astray")
		astray.Properties.To = new(gone.Address())
		for want, m := range map[amqp.ErrCond]*amqp.Message{
			amqp.ErrCondPreconditionFailed: text("no address"),
			amqp.ErrCondNotFound:           astray,
		} {
			receipt, err := snd.SendWithReceipt(t.Context(), m, nil)
			require.NoError(t, err)
			state, err := receipt.Wait(t.Context())
			require.NoError(t, err)
			rejected, ok := state.(*amqp.StateRejected)
			require.True(t, ok, "%T", state)
			assert.Equal(t, want, rejected.Error.Condition)
		}
		foreign := text("of no format that is known here")
		foreign.Format = 7
		require.Error(t, snd.Send(t.Context(), foreign, nil))
		astray.Properties.To = new("orders")
		require.NoError(t, snd.Send(t.Context(), astray, nil), "the link lives on")
	})
}

func TestAnonymous_isFoundByTheFaultsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Answer("orders", amqpflow.Released, nil)))
		snd := sender(t, connect(t, s, nil), "", nil)
		for _, to := range []string{"invoices", "orders"} {
			m := text(to)
			m.Properties.To = new(to)
			_ = snd.Send(t.Context(), m, nil) // go-amqp does not tell released
		}
		assert.Len(t, s.Messages("invoices"), 1)
		assert.Empty(t, s.Messages("orders"))
	})
}

func TestAnonymous_isOfferedInOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dialRaw(t, newServer(t, nil)).opened()
		var o wire.Open
		require.NoError(t, o.Decode(r.await(wire.CodeOpen)))
		assert.Contains(t, o.OfferedCapabilities, wire.Symbol("ANONYMOUS-RELAY"))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}
