package amqptest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestServer_idleWaitsForTheLastSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Idle(t.Context()), "nothing is there")
		ses := connect(t, s, nil)
		require.NoError(t, s.Put("orders", numbered(2)...))
		said := ""
		isIdle := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.Idle(ctx)
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				said = err.Error()
			}
			return err == nil
		}
		assert.False(t, isIdle(), "two are queued")
		assert.Contains(t, said, `not idle: queue "orders" has 2 messages: context deadline`)
		rcv := manual(t, ses, "orders", 2)
		a, b := receive(t, rcv), receive(t, rcv)
		require.NoError(t, rcv.RejectMessage(t.Context(), a, nil))
		assert.False(t, isIdle(), "one is unsettled")
		assert.Contains(t, said, `: deliveries to it are unsettled: context deadline`)
		began := time.Now()
		later := time.AfterFunc(3*time.Second, func() { _ = rcv.AcceptMessage(t.Context(), b) })
		defer later.Stop()
		require.NoError(t, s.Idle(t.Context()))
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestServer_idleWaitsForTheRestOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened()
		out := attachSender(0)
		out.SndSettleMode = sndSettled
		r.send(out)
		r.awaitFlow()
		tr := first(0)
		tr.More, tr.Settled, tr.HasSettled = true, true, true
		r.transfer(tr, hello)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Idle(ctx), context.DeadlineExceeded)
		r.transfer(wire.Transfer{Aborted: true}, nil)
		require.NoError(t, s.Idle(t.Context()))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_idleEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		require.NoError(t, s.Put("orders", text("0")))
		later := time.AfterFunc(time.Second, func() { _ = s.Close() })
		defer later.Stop()
		require.ErrorIs(t, s.Idle(t.Context()), ErrClosed)
	})
}

// idle looks once.
func (s *Server) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleLocked()
}

func TestServer_isNotIdleWhileSomethingIsToBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(1)...))
		r := dialRaw(t, s).opened()
		in := attachReceiver(0)
		in.SndSettleMode = sndSettled
		r.send(in, linkFlow(1))
		synctest.Wait()
		assert.Empty(t, s.Messages("orders"))
		assert.False(t, s.idle(), "the client has read nothing")
		r.awaitTransfer()
		require.NoError(t, s.Idle(t.Context()))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_isNotIdleWithinAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		delivery := first(0)
		delivery.Settled, delivery.HasSettled = true, true
		b := frameOf(wire.TypeAMQP, 0, &delivery, hello)
		r.bytes(b[:20])
		synctest.Wait()
		assert.False(t, s.idle())
		r.bytes(b[20:])
		synctest.Wait()
		assert.Equal(t, []string{"hello"}, bodies(t, s))
		bye(r)
	})
}
