package amqptest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestFault_silenceIsEndedByTheClientsIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []Fault{Silence(), Mute()} {
			s := newServer(t, &Options{IdleTimeout: time.Minute})
			c, ses := connectBoth(t, s, &amqp.ConnOptions{IdleTimeout: 10 * time.Second})
			require.NoError(t, s.Put("orders", text("0")))
			receive(t, manual(t, ses, "orders", 2))
			start := time.Now()
			require.NoError(t, s.Fault(f))
			<-c.Done()
			assert.InDelta(t, 10*time.Second, time.Since(start), float64(5*time.Second), "%v", f)
			synctest.Wait()
			assert.Len(t, s.Messages("orders"), 1, "%v", f)
			require.NoError(t, round(t, s), "%v: the next connection is not silent", f)
		}
	})
}

func TestFault_silenceEndsAndEverythingArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []Fault{Silence(), Mute(), Deaf(), StopReading()} {
			s := newServer(t, &Options{IdleTimeout: 10 * time.Second})
			snd := sender(t, connect(t, s, &amqp.ConnOptions{IdleTimeout: time.Hour, WriteTimeout: time.Hour}), "orders", nil)
			f = f.For(time.Minute)
			require.NoError(t, s.Fault(f))
			start := time.Now()
			for range 3 {
				require.NoError(t, snd.Send(t.Context(), text("0"), nil), "%v", f)
			}
			assert.Equal(t, time.Minute, time.Since(start), "%v", f)
			assert.Len(t, s.Messages("orders"), 3)
		}
	})
}

func TestFault_muteServerHearsAndDeafServerTalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd, rcv := sender(t, ses, "orders", nil), manual(t, ses, "out", 1)
		require.NoError(t, s.Fault(Mute()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, snd.Send(ctx, text("0"), nil), context.DeadlineExceeded)
		assert.Equal(t, []string{"0"}, bodies(t, s))
		s.Heal()

		require.NoError(t, s.Fault(Deaf()))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, snd.Send(ctx, text("1"), nil), context.DeadlineExceeded)
		require.NoError(t, s.Put("out", text("2")))
		receive(t, rcv)
		assert.Equal(t, []string{"0"}, bodies(t, s))
		s.Heal()
		synctest.Wait()
		assert.Equal(t, []string{"0", "1"}, bodies(t, s))
	})
}

func TestFault_silenceFromTheFirstByteOfEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Silence().AfterFrames(0).Always()))
		for range 3 {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			nc, err := s.Dial(ctx)
			require.NoError(t, err)
			_, err = amqp.NewConn(ctx, nc, nil)
			require.Error(t, err)
			assert.Equal(t, time.Minute, time.Since(start))
			cancel()
		}
		s.Heal()
		require.NoError(t, round(t, s))
	})
}

func TestFault_stopReadingBlocksTheClientsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		nc, err := s.Dial(t.Context())
		require.NoError(t, err)
		h := wire.ProtocolHeader(wire.ProtoAMQP)
		require.NoError(t, s.Fault(StopReading().AfterFrames(0)))
		require.NoError(t, nc.SetWriteDeadline(time.Now().Add(time.Minute)))
		_, err = nc.Write(h[:])
		require.NoError(t, err, "the read that had begun")
		_, err = nc.Write(h[:])
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		require.NoError(t, nc.Close())
	})
}

func TestFault_dripsByteByByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", amqp.NewMessage(make([]byte, 1000))))
		rcv := manual(t, connect(t, s, nil), "orders", 0)
		synctest.Wait()
		require.NoError(t, s.Fault(Drip(7, time.Second)))
		start := time.Now()
		require.NoError(t, rcv.IssueCredit(1))
		assert.Len(t, receive(t, rcv).GetData(), 1000)
		assert.InDelta(t, 150*time.Second, time.Since(start), float64(15*time.Second))
	})
}

func TestFault_withholdsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(WithholdCredit("orders").After(1).For(time.Hour)))
		ses := connect(t, s, nil)
		snd, other := sender(t, ses, "orders", nil), sender(t, ses, "other", nil)
		start := time.Now()
		for range linkCredit {
			require.NoError(t, snd.Send(t.Context(), text("0"), nil))
			require.NoError(t, other.Send(t.Context(), text("0"), nil))
		}
		assert.Zero(t, time.Since(start))
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		assert.Equal(t, time.Hour, time.Since(start))

		require.NoError(t, s.Fault(WithholdCredit("orders")))
		snd = sender(t, ses, "orders", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorContains(t, snd.Send(ctx, text("0"), nil), "credit limit exceeded")
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		s.Heal()
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
	})
}

func TestFault_creditWithheldFromAnEndedSessionStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(WithholdCredit("orders").For(time.Hour)))
		c, zero := connectBoth(t, s, nil)
		one, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		sender(t, one, "orders", nil)
		require.NoError(t, one.Close(t.Context()))
		<-time.After(2 * time.Hour)
		require.NoError(t, sender(t, zero, "orders", nil).Send(t.Context(), text("0"), nil))
		ended := false
		for _, f := range s.Frames() {
			if f.Sent && f.Channel == 1 {
				assert.False(t, ended, "%v", f)
				ended = ended || f.Name == "end"
			}
		}
		assert.True(t, ended)
	})
}

func TestFault_withholdsTheSessionWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{Window: 10})
		require.NoError(t, s.Fault(WithholdWindow().OnSession(1).For(time.Hour)))
		c, zero := connectBoth(t, s, nil)
		one, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, sender(t, zero, "orders", nil).Send(t.Context(), text("0"), nil))
		assert.Zero(t, time.Since(start))
		require.NoError(t, sender(t, one, "orders", nil).Send(t.Context(), text("0"), nil))
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

func TestFault_sessionWindowIsOpenedSoOftenAndThenWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{Window: 2})
		require.NoError(t, s.Fault(WithholdWindow().After(1)))
		r := dialRaw(t, s).opened()
		var b wire.Begin
		require.NoError(t, b.Decode(r.await(wire.CodeBegin)))
		assert.Equal(t, uint32(2), b.IncomingWindow)
		r.send(attachSender(0))
		assert.Equal(t, uint32(2), r.awaitFlow().IncomingWindow)
		r.transfer(first(0), hello)
		assert.Equal(t, uint32(1), r.awaitFlow().IncomingWindow)
		r.transfer(first(1), hello)
		assert.Zero(t, r.awaitFlow().IncomingWindow)
	})
}

func TestFault_dripOutlastsTheIdleTimeoutAndTheWriteBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{IdleTimeout: 10 * time.Second})
		for range 5 {
			require.NoError(t, s.Put("orders", amqp.NewMessage(make([]byte, 100_000))))
		}
		rcv := manual(t, connect(t, s, nil), "orders", 0)
		synctest.Wait()
		require.NoError(t, s.Fault(Drip(1000, time.Second)))
		start := time.Now()
		require.NoError(t, rcv.IssueCredit(5)) // more than waits in the write buffer
		for range 5 {
			receive(t, rcv)
		}
		assert.InDelta(t, 500*time.Second, time.Since(start), float64(20*time.Second))
	})
}

func TestFault_withholdsEachGrantForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{Window: 4})
		require.NoError(t, s.Fault(WithholdCredit("orders").For(time.Hour).Always()))
		c, ses := connectBoth(t, s, nil)
		start := time.Now()
		require.NoError(t, sender(t, ses, "orders", nil).Send(t.Context(), text("0"), nil))
		assert.Equal(t, time.Hour, time.Since(start))
		s.Heal()

		require.NoError(t, s.Fault(WithholdWindow().For(time.Hour).Always()))
		ses, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		start = time.Now()
		require.NoError(t, sender(t, ses, "orders", nil).Send(t.Context(), text("0"), nil))
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

func TestFault_deafServerTakesOnlySoMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s)
		require.NoError(t, s.Fault(Deaf().AfterFrames(0)))
		h := wire.ProtocolHeader(wire.ProtoAMQP)
		_, err := r.nc.Write(h[:])
		taken := len(h)
		for err == nil {
			require.NoError(t, r.nc.SetWriteDeadline(time.Now().Add(time.Minute)))
			var n int
			n, err = r.nc.Write(make([]byte, 1000))
			taken += n
		}
		assert.InDelta(t, heldInput, taken, 2*readBufferSize)
	})
}
