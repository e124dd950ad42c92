package amqptest

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestFault_suspendsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		r := dialRaw(t, s).opened().receiving(1)
		r.awaitTransfer()
		require.NoError(t, s.Fault(Suspend("orders", amqp.ErrCondDetachForced, "moved")))
		d := r.awaitDetach()
		assert.Equal(t, wire.Detach{Error: &wire.Error{Condition: "amqp:link:detach-forced", Description: "moved"}}, d)
		assert.Equal(t, []string{"0"}, bodies(t, s))
		r.send(&wire.Detach{Handle: 0})
		r.receiving(1).awaitTransfer()

		require.NoError(t, s.Fault(Suspend("orders", "", "")))
		assert.Equal(t, wire.Detach{}, r.awaitDetach())
	})
}

func TestFault_detachesAWhileAfterTheAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Detach("orders", amqp.ErrCondDetachForced, "").Delay(10*time.Millisecond).Times(3)))
		ses := connect(t, s, nil)
		for range 3 {
			start := time.Now()
			_, err := manual(t, ses, "orders", 1).Receive(t.Context(), nil)
			var lost *amqp.LinkError
			require.ErrorAs(t, err, &lost)
			assert.Equal(t, 10*time.Millisecond, time.Since(start))
		}
		manual(t, ses, "orders", 1)
	})
}

func TestFault_endsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		c, zero := connectBoth(t, s, nil)
		one, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		rcv := manual(t, one, "orders", 1)
		receive(t, rcv)
		require.NoError(t, s.Fault(End(amqp.ErrCondResourceDeleted, "gone").OnSession(1)))
		_, err = rcv.Receive(t.Context(), nil)
		var lost *amqp.SessionError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, &amqp.Error{Condition: amqp.ErrCondResourceDeleted, Description: "gone"}, lost.RemoteErr)
		assert.Equal(t, []string{"0"}, bodies(t, s), "what was unsettled is back")
		require.NoError(t, sender(t, zero, "other", nil).Send(t.Context(), text("0"), nil), "the other session lives on")

		require.NoError(t, s.Fault(End("", "").OnAddress("other")))
		_, err = zero.NewSender(t.Context(), "other", nil)
		require.ErrorAs(t, err, &lost)
		assert.Nil(t, lost.RemoteErr)
	})
}

func TestFault_endedSessionDropsWhatComesBeforeTheClientsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		require.NoError(t, s.Fault(End("", "")))
		r.await(wire.CodeEnd)
		r.transfer(first(0), hello)
		r.send(attachReceiver(1), &wire.End{}, &wire.Begin{IncomingWindow: 1, OutgoingWindow: 1, HandleMax: 1})
		var b wire.Begin
		require.NoError(t, b.Decode(r.await(wire.CodeBegin)))
		assert.Empty(t, bodies(t, s))
	})
}

func TestFault_closesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		a, _ := connectBoth(t, s, &amqp.ConnOptions{ContainerID: "a"})
		b, _ := connectBoth(t, s, &amqp.ConnOptions{ContainerID: "b"})
		require.NoError(t, s.Fault(Close(amqp.ErrCondConnectionForced, "maintenance").OnContainer("a")))
		<-a.Done()
		var lost *amqp.ConnError
		require.ErrorAs(t, a.Err(), &lost)
		assert.Equal(t, &amqp.Error{Condition: amqp.ErrCondConnectionForced, Description: "maintenance"}, lost.RemoteErr)

		require.NoError(t, s.Fault(Close("", "")))
		<-b.Done()
		assert.NoError(t, b.Err(), "a close without an error")
	})
}

func TestFault_dropsWithinAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Drop().AfterBytes(8+3)))
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		got, err := io.ReadAll(r.nc)
		require.NoError(t, err)
		assert.Equal(t, "AMQ", string(got))

		require.NoError(t, s.Fault(Drop().AfterBytes(8+8+1)))
		r = dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512})
		got, err = io.ReadAll(r.nc)
		require.NoError(t, err)
		assert.Equal(t, "AMQP\x00\x01\x00\x00", string(got), "the client's frame beyond the count is not answered")

		r = dialRaw(t, s).opened().sending()
		require.NoError(t, s.Fault(Drop().AfterBytes(1)))
		r.transfer(first(0), hello)
		synctest.Wait()
		assert.Empty(t, s.conns)
		assert.Empty(t, bodies(t, s), "nor handled")
	})
}

// round is one whole use of a connection: what is cut in it ends in an error.
func round(t *testing.T, s *Server) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc, err := s.Dial(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // go-amqp's Send outlives its context while the window is shut
	c, err := amqp.NewConn(ctx, nc, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// go-amqp's Close may wait for a write that nobody reads, under a lock that
			// its own end waits for, too: then a bubble's clock stands still.
			_ = nc.Close()
		}
		_ = c.Close()
	}()
	ses, err := c.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	snd, err := ses.NewSender(ctx, "orders", nil)
	if err != nil {
		return err
	}
	if err := snd.Send(ctx, text("0"), nil); err != nil {
		return err
	}
	// Credit by hand: by itself go-amqp may grant it behind its DETACH.
	rcv, err := ses.NewReceiver(ctx, "orders", &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		return err
	}
	if err := rcv.IssueCredit(1); err != nil {
		return err
	}
	m, err := rcv.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(rcv.AcceptMessage(ctx, m), rcv.Close(ctx), snd.Close(ctx), ses.Close(ctx))
}

func TestFault_dropsAtEachFrameOfAConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 27 {
			s := newServer(t, nil)
			f := Drop().AfterFrames(n)
			require.NoError(t, s.Fault(f))
			require.Error(t, round(t, s), "%v", f)
			synctest.Wait()
			assert.Empty(t, s.conns, "%v", f)
			require.NoError(t, round(t, s), "%v happened once", f)
		}
	})
}

func TestFault_dropsAtEachByteOfAConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for n := 0; n < 1000; n += 7 {
			require.NoError(t, s.Fault(Drop().AfterBytes(n)))
			require.Error(t, round(t, s), "%d bytes", n)
		}
		require.NoError(t, round(t, s))
	})
}

func TestFault_writesBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		c, _ := connectBoth(t, s, nil)
		require.NoError(t, s.Fault(WriteBytes([]byte("\xff\xff\xff\xff no frame")).Always()))
		<-c.Done()
		require.Error(t, c.Err())
		s.Heal()

		// A second BEGIN on our channel 0, which go-amqp has a session on.
		require.NoError(t, s.Fault(WriteBytes(frameOf(wire.TypeAMQP, 0, &wire.Begin{RemoteChannel: wire.Some(0), HandleMax: 1}, nil)).AfterFrames(3)))
		c, err := tryConn(t, s, nil)
		require.NoError(t, err)
		<-c.Done()
		require.Error(t, c.Err())
	})
}
