package amqptest

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

// soon is a context of a minute.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestFault_delaysADisposition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Answer("orders", amqpflow.Accepted, nil).Delay(time.Hour).After(1)))
		snd := sender(t, connect(t, s, nil), "orders", nil)
		start := time.Now()
		answered := func(id string) time.Duration {
			receipt, err := snd.SendWithReceipt(t.Context(), text(id), nil)
			require.NoError(t, err)
			_, err = receipt.Wait(t.Context())
			require.NoError(t, err)
			return time.Since(start)
		}
		assert.Zero(t, answered("0"))
		assert.Equal(t, time.Hour, answered("1"))
		assert.Equal(t, time.Hour, answered("2"))
		assert.Equal(t, []string{"0", "1", "2"}, bodies(t, s))
	})
}

func TestFault_lateDispositionOfASessionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Answer("orders", amqpflow.Accepted, nil).Delay(time.Hour)))
		ses := connect(t, s, nil)
		_, err := sender(t, ses, "orders", nil).SendWithReceipt(t.Context(), text("0"), nil)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, ses.Close(t.Context()))
		<-time.After(2 * time.Hour)
		require.NoError(t, round(t, s))
	})
}

func TestFault_dropsADisposition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(DropDisposition("orders")))
		snd := sender(t, connect(t, s, nil), "orders", nil)
		require.ErrorIs(t, snd.Send(soon(t), text("0"), nil), context.DeadlineExceeded)
		require.NoError(t, snd.Send(soon(t), text("1"), nil))
		assert.Equal(t, []string{"0", "1"}, bodies(t, s))
	})
}

func TestFault_ignoresAConsumersDisposition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		require.NoError(t, s.Fault(IgnoreDisposition("orders")))
		rcv := manual(t, connect(t, s, nil), "orders", 1)
		require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
		require.NoError(t, rcv.Close(t.Context()))
		assert.Equal(t, []string{"0"}, bodies(t, s), "accepted, and back")
		assert.Empty(t, s.Settlements("orders"))
	})
}

func TestFault_neverAnswersADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(IgnoreDrain("orders")))
		rcv := manual(t, connect(t, s, nil), "orders", 5)
		require.ErrorIs(t, rcv.DrainCredit(soon(t), nil), context.DeadlineExceeded)
	})
}

func TestFault_neverAnswersADetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(IgnoreDetach("orders").OnLink("in0")))
		r := dialRaw(t, s).opened()
		r.send(attachReceiver(0), &wire.Detach{Handle: 0, Closed: true}, attachReceiver(0))
		var a wire.Attach
		require.NoError(t, a.Decode(r.await(wire.CodeAttach)))
		assert.Equal(t, uint32(0), a.Handle)
		require.NoError(t, a.Decode(r.await(wire.CodeAttach)))
		assert.Equal(t, uint32(1), a.Handle, "the first handle stays taken")
		r.send(&wire.Detach{Handle: 0, Closed: true})
		assert.Equal(t, uint32(1), r.awaitDetach().Handle)

		require.NoError(t, s.Fault(IgnoreDetach("orders")))
		rcv := manual(t, connect(t, s, nil), "orders", 1)
		require.ErrorIs(t, rcv.Close(soon(t)), context.DeadlineExceeded)
	})
}

func TestFault_neverAnswersAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(IgnoreEnd().OnSession(1)))
		c, zero := connectBoth(t, s, nil)
		one, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		require.ErrorIs(t, one.Close(soon(t)), context.DeadlineExceeded)
		require.NoError(t, zero.Close(soon(t)))
	})
}

func TestFault_neverAnswersAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		require.NoError(t, s.Fault(IgnoreClose()))
		r := dialRaw(t, s).opened().receiving(1)
		r.awaitTransfer()
		r.send(&wire.Close{})
		synctest.Wait()
		assert.Equal(t, []string{"0"}, bodies(t, s), "what was unsettled is back")
		require.NoError(t, r.nc.SetReadDeadline(time.Now().Add(time.Hour)))
		assert.Nil(t, r.frame())
		assert.Len(t, s.conns, 1)
	})
}

func TestFault_answersWithANullState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Answer("orders", amqpflow.OutcomeNone, nil).Always().OnLink("x")))
		ses := connect(t, s, nil)
		x := sender(t, ses, "orders", &amqp.SenderOptions{Name: "x"})
		for range 3 {
			receipt, err := x.SendWithReceipt(t.Context(), text("0"), nil)
			require.NoError(t, err)
			state, err := receipt.Wait(t.Context())
			require.NoError(t, err)
			assert.Nil(t, state)
		}
		require.NoError(t, sender(t, ses, "orders", nil).Send(t.Context(), text("1"), nil))
		assert.Equal(t, []string{"1"}, bodies(t, s))
	})
}
