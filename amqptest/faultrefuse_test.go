package amqptest

import (
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// tryConn is a go-amqp client that connects, or not.
func tryConn(t *testing.T, s *Server, o *amqp.ConnOptions) (*amqp.Conn, error) {
	t.Helper()
	nc, err := s.Dial(t.Context())
	require.NoError(t, err)
	c, err := amqp.NewConn(t.Context(), nc, o)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestFault_refusesTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(RefuseTCP().After(1).Times(2)))
		for range 2 {
			connect(t, s, nil)
			_, err := s.Dial(t.Context())
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		connect(t, s, nil)
	})
}

func TestFault_refusesSASL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Sequence(RefuseSASL(wire.SASLSysTemp).Delay(10*time.Second), HangUpSASL())))
		plain := &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("u", "p")}
		start := time.Now()
		_, err := tryConn(t, s, plain)
		require.ErrorContains(t, err, "code 0x4")
		assert.Equal(t, 10*time.Second, time.Since(start))
		_, err = tryConn(t, s, plain)
		require.ErrorIs(t, err, io.EOF)
		_, err = tryConn(t, s, plain)
		require.NoError(t, err)
	})
}

func TestFault_refusesOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(RefuseOpen(amqp.ErrCondNotAllowed, "no such vhost").OnContainer("a").Delay(time.Second)))
		require.NoError(t, s.Fault(RefuseOpen("", "").OnContainer("b")))
		ends := func(container string) error {
			c, err := tryConn(t, s, &amqp.ConnOptions{ContainerID: container})
			require.NoError(t, err)
			<-c.Done()
			return c.Err()
		}
		start := time.Now()
		assert.Equal(t, amqp.ErrCondNotAllowed, conditionOf(t, ends("a")))
		assert.Equal(t, time.Second, time.Since(start))
		require.NoError(t, ends("b"), "a close without an error")
		for range 2 {
			connect(t, s, &amqp.ConnOptions{ContainerID: "a"})
		}
	})
}

func TestFault_refusesBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(RefuseBegin(amqp.ErrCondResourceLimitExceeded, "enough").After(1)))
		c, first := connectBoth(t, s, nil)
		second, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		_, err = second.NewSender(t.Context(), "orders", nil)
		var lost *amqp.SessionError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, amqp.ErrCondResourceLimitExceeded, lost.RemoteErr.Condition)
		require.NoError(t, sender(t, first, "orders", nil).Send(t.Context(), text("0"), nil), "the other lives on")
		third, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		sender(t, third, "orders", nil)
	})
}

func TestFault_refusesAttachWithoutACondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(RefuseAttach("orders", "", "").Delay(time.Hour)))
		ses := connect(t, s, nil)
		start := time.Now()
		_, err := ses.NewReceiver(t.Context(), "orders", nil)
		require.ErrorContains(t, err, "detach with no error")
		assert.Equal(t, time.Hour, time.Since(start))
		manual(t, ses, "orders", 0)
	})
}

func TestFault_lateRefusalOfAnAttachMeetsTheClientsDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(RefuseAttach("orders", amqp.ErrCondNotFound, "").Delay(time.Hour)))
		r := dialRaw(t, s).opened()
		r.send(attachReceiver(0), linkFlow(1), &wire.Detach{Handle: 0, Closed: true})
		assert.Nil(t, r.awaitDetach().Error)
		<-time.After(2 * time.Hour)
		r.send(&wire.Close{})
		assert.Equal(t, wire.CodeClose, r.next(), "no second detach")
	})
}
