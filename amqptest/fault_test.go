package amqptest

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

func conditionOf(t *testing.T, err error) amqp.ErrCond {
	t.Helper()
	var e *amqp.Error
	require.ErrorAs(t, err, &e)
	return e.Condition
}

func TestFault_refusesAttaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(RefuseAttach("orders", amqp.ErrCondUnauthorizedAccess, "not you").After(1).Times(2)))
		ses := connect(t, s, nil)
		sender(t, ses, "other", nil)
		sender(t, ses, "orders", nil)
		_, err := ses.NewSender(t.Context(), "orders", nil)
		assert.Equal(t, amqp.ErrCondUnauthorizedAccess, conditionOf(t, err))
		require.ErrorContains(t, err, "not you")
		manual(t, ses, "orders", 0)
		_, err = ses.NewReceiver(t.Context(), "orders", nil)
		assert.Equal(t, amqp.ErrCondUnauthorizedAccess, conditionOf(t, err))
		for range 3 {
			manual(t, ses, "orders", 0)
		}
	})
}

func TestFault_answersPublishes(t *testing.T) {
	reason := &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "full", Info: map[string]any{"limit": int64(5)}}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for _, f := range []Fault{
			Answer("orders", amqpflow.Rejected, reason),
			Answer("orders", amqpflow.Released, nil),
			Answer("orders", amqpflow.Modified, nil).Times(2),
			Answer("orders", amqpflow.Accepted, nil),
			Answer("orders", amqpflow.OutcomeNone, nil),
		} {
			require.NoError(t, s.Fault(f))
		}
		snd := sender(t, connect(t, s, nil), "orders", nil)
		outcome := func(i int) amqp.DeliveryState {
			receipt, err := snd.SendWithReceipt(t.Context(), text(strconv.Itoa(i)), nil)
			require.NoError(t, err)
			state, err := receipt.Wait(t.Context())
			require.NoError(t, err)
			return state
		}
		assert.Equal(t, &amqp.StateRejected{Error: reason}, outcome(0))
		assert.Equal(t, &amqp.StateReleased{}, outcome(1))
		assert.Equal(t, &amqp.StateModified{DeliveryFailed: true}, outcome(2))
		assert.Equal(t, &amqp.StateModified{DeliveryFailed: true}, outcome(3))
		assert.Equal(t, &amqp.StateAccepted{}, outcome(4))
		assert.Nil(t, outcome(5))
		assert.Equal(t, &amqp.StateAccepted{}, outcome(6))
		assert.Equal(t, []string{"4", "6"}, bodies(t, s))
	})
}

func TestFault_detachesAtOnceOrAfterDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(5)...))
		require.NoError(t, s.Fault(Detach("orders", amqp.ErrCondDetachForced, "maintenance").After(3)))
		ses := connect(t, s, nil)
		rcv := manual(t, ses, "orders", 5)
		for range 3 {
			receive(t, rcv)
		}
		_, err := rcv.Receive(t.Context(), nil)
		var lost *amqp.LinkError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, amqp.ErrCondDetachForced, lost.RemoteErr.Condition)
		assert.Equal(t, []string{"0", "1", "2", "3", "4"}, bodies(t, s))

		snd := sender(t, ses, "orders", nil)
		other := sender(t, ses, "other", nil)
		require.NoError(t, s.Fault(Detach("orders", "", "")))
		synctest.Wait()
		require.ErrorAs(t, snd.Send(t.Context(), text("x"), nil), &lost)
		assert.Nil(t, lost.RemoteErr)
		require.NoError(t, other.Send(t.Context(), text("x"), nil), "the session lives on")
		require.NoError(t, sender(t, ses, "orders", nil).Send(t.Context(), text("x"), nil), "it happened once")
	})
}

func TestFault_detachWaitsForALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Detach("orders", amqp.ErrCondResourceDeleted, "").Times(2)))
		ses := connect(t, s, nil)
		for range 2 {
			rcv := manual(t, ses, "orders", 1)
			_, err := rcv.Receive(t.Context(), nil)
			var lost *amqp.LinkError
			require.ErrorAs(t, err, &lost)
		}
		require.NoError(t, s.Put("orders", text("0")))
		rcv := manual(t, ses, "orders", 1)
		require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
	})
}

func TestFault_dropsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		a, sesA := connectBoth(t, s, nil)
		b, sesB := connectBoth(t, s, nil)
		require.NoError(t, s.Fault(Drop().After(3)))
		snd := sender(t, sesA, "orders", nil)
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		require.NoError(t, snd.Send(t.Context(), text("1"), nil))
		manual(t, sesB, "orders", 1)
		<-a.Done()
		<-b.Done()
		var lost *amqp.ConnError
		require.ErrorAs(t, a.Err(), &lost)
		assert.Nil(t, lost.RemoteErr)
		synctest.Wait()
		assert.Equal(t, []string{"0", "1"}, bodies(t, s))
		sender(t, connect(t, s, nil), "orders", nil)

		require.NoError(t, s.Fault(Drop()))
		synctest.Wait()
		assert.Empty(t, s.conns)
	})
}

func TestFault_isCheckedWhenItIsSetGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		bad := &amqp.Error{Info: map[string]any{"x": struct{}{}}}
		for want, f := range map[string]Fault{
			"a zero Fault":              {},
			"times 0 is below 1":        Drop().Times(0),
			"after -1 is below 0":       Drop().After(-1),
			"has no name":               RefuseAttach("", amqp.ErrCondNotFound, ""),
			"outcome 99 does not exist": Answer("orders", 99, nil),
			`info "x"`:                  Answer("orders", amqpflow.Rejected, bad),
		} {
			require.ErrorContains(t, s.Fault(f), want)
		}
		f := Drop()
		f.Times(5).After(5)
		assert.Equal(t, Drop(), f, "a Fault is a value")
	})
}
