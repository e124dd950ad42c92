package dataplane

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestConn_closeFlushesAndWaitsForThePeersClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		s, _ := r.begin()
		l, pl := r.attach(s, "in", 0, wire.RoleReceiver)
		require.NoError(t, l.Grant(2000, true))
		synctest.Wait()
		for range 1000 {
			pl.deliver(0, false, nil)
		}
		synctest.Wait()
		r.p.locked(func() { r.p.opt.mute = map[uint64]bool{wire.CodeClose: true} })
		for _, d := range take(t, l, 1000) {
			require.NoError(t, l.Settle(d.ID, accepted))
		}
		r.write(0, &wire.Close{})
		begun := time.Now()
		closed := make(chan struct{})
		go1(t, func() { assert.NoError(t, r.c.Close()); close(closed) })
		for range 500 { // more is under way, which must be read, not kept
			pl.deliver(0, false, nil)
		}
		synctest.Wait()
		r.p.locked(func() {
			assert.True(t, r.p.closed)
			assert.Len(t, pl.s.settled, 1000, "what was settled is flushed before the CLOSE")
		})
		assert.False(t, isOver(r.c))
		require.ErrorIs(t, r.c.Err(), ErrClosed)
		require.ErrorIs(t, l.Settle(1100, accepted), ErrLinkLost)
		pass(700 * time.Millisecond)
		r.p.send(0, &wire.Close{})
		<-closed
		assert.Equal(t, 700*time.Millisecond, time.Since(begun))
		assert.NoError(t, r.c.Close())
		_, err := r.rest()
		require.ErrorIs(t, err, net.ErrClosed, "go-amqp takes it for an orderly end")
	})
}

func TestConn_closeLingersNoLongerThanItMay(t *testing.T) {
	for name, mute := range map[string]bool{"no answer": true, "does not read": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBare(t, rigOptions{})
				r.open()
				r.begin()
				if mute {
					synctest.Wait()
					r.p.locked(func() { r.p.opt.mute = map[uint64]bool{wire.CodeClose: true} })
				} else {
					defer r.p.stall()()
					_, err := r.c.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
					require.NoError(t, err)
					synctest.Wait()
				}
				begun := time.Now()
				require.NoError(t, r.c.Close())
				assert.Equal(t, time.Second, time.Since(begun))
				assert.Equal(t, mute, last(r.p.seen()) == "close", "Close writes one if go-amqp did not")
				require.ErrorIs(t, r.c.Err(), ErrClosed)
			})
		})
	}
}

func TestConn_closeBeforeOpenIsAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		begun := time.Now()
		require.NoError(t, r.c.Close())
		assert.Zero(t, time.Since(begun))
		assert.True(t, isOver(r.c))
		_, err := r.c.ExpectSession()
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestConn_peersCloseEndsEverythingAndIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		pl.credit(1)
		rc := sendAll(t, l, 1)[0]
		synctest.Wait()
		r.p.locked(func() { r.p.opt.mute = map[uint64]bool{wire.CodeClose: true} })
		r.p.send(0, &wire.Close{Error: &wire.Error{Condition: "amqp:connection:forced", Description: "bye"}})
		<-r.c.Done()
		synctest.Wait()
		assert.Equal(t, "close", last(r.p.seen()))
		for _, err := range []error{r.c.Err(), s.Err(), l.Err(), rc.Err()} {
			var pe *PeerError
			require.ErrorAs(t, err, &pe)
			assert.Equal(t, "close", pe.Performative)
			var we *wire.Error
			require.ErrorAs(t, err, &we)
			assert.Equal(t, "bye", we.Description)
		}
		require.ErrorIs(t, rc.Err(), ErrUncertain)
	})
}

func TestConn_peersCloseThatNobodyAnswersEndsAfterTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		begun := time.Now()
		r.p.send(0, &wire.Close{})
		<-r.c.Done()
		assert.Equal(t, time.Second, time.Since(begun))
		var pe *PeerError
		require.ErrorAs(t, r.c.Err(), &pe)
		assert.Equal(t, "peer sent close", pe.Error())
		require.NoError(t, errors.Unwrap(pe))
	})
}

func TestConn_findsSilenceWithinATenthMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{Options: Options{Idle: 10 * time.Second}})
		r.open()
		s, _ := r.begin()
		l, pl := r.attach(s, "in", 0, wire.RoleReceiver)
		require.NoError(t, l.Grant(1000, true))
		begun := time.Now()
		for i := range 40 {
			pass(9 * time.Second) // data alone keeps it alive, and so do empty frames
			if i%2 == 0 {
				pl.deliver(0, true, nil)
			} else {
				r.p.write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
			}
		}
		assert.False(t, isOver(r.c))
		assert.Equal(t, 360*time.Second, time.Since(begun))
		quiet := time.Now()
		<-r.c.Done()
		require.ErrorIs(t, r.c.Err(), ErrIdle)
		assert.GreaterOrEqual(t, time.Since(quiet), 10*time.Second)
		assert.LessOrEqual(t, time.Since(quiet), 11*time.Second)
	})
}

func TestConn_negativeIdleWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{Options: Options{Idle: -1}})
		r.open()
		pass(1000 * time.Hour)
		assert.False(t, isOver(r.c))
	})
}

func TestConn_failsWhenAWriteMakesNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{Options: Options{WriteTimeout: 5 * time.Second, Idle: -1}})
		r.open()
		begun := time.Now()
		defer r.p.stall()()
		for range 3 {
			_, err := r.c.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
			require.NoError(t, err)
			synctest.Wait()
		}
		<-r.c.Done()
		require.ErrorContains(t, r.c.Err(), "no progress writing for 5s")
		assert.GreaterOrEqual(t, time.Since(begun), 5*time.Second)
		assert.LessOrEqual(t, time.Since(begun), 5500*time.Millisecond)
	})
}

func TestConn_settledDispositionsWaitAtMostAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		s, _ := r.begin()
		l, pl := r.attach(s, "in", 0, wire.RoleReceiver)
		require.NoError(t, l.Grant(100, true))
		synctest.Wait()
		for range 90 {
			pl.deliver(0, false, nil)
		}
		take(t, l, 90)
		count := func() (n int) {
			synctest.Wait()
			r.p.locked(func() { n = pl.s.dispositions })
			return n
		}
		require.Empty(t, l.SettleAll([]uint32{3, 1, 0, 2}, accepted))
		assert.Zero(t, count())
		pass(999 * time.Microsecond)
		assert.Zero(t, count())
		pass(time.Microsecond)
		assert.Equal(t, 1, count(), "after a millisecond, as one range")

		require.NoError(t, l.Settle(5, accepted))
		require.NoError(t, l.Grant(100, true))
		assert.Equal(t, 2, count(), "with an urgent frame, and before it")
		assert.Contains(t, last(r.p.seen()), "flow")

		for id := uint32(10); id < 59; id++ {
			require.NoError(t, l.Settle(id, accepted))
		}
		assert.Equal(t, 2, count())
		require.NoError(t, l.Settle(59, accepted))
		assert.Equal(t, 3, count(), "at half a window")
	})
}

func TestConn_closeBesideGoAMQPsOwnCloseSendsOne(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			r := newBare(t, rigOptions{})
			r.open()
			go1(t, func() { _ = r.tryWrite(0, &wire.Close{}) })
			require.NoError(t, r.c.Close())
			r.p.locked(func() { assert.True(t, r.p.closed) })
		})
		if t.Failed() {
			return
		}
	}
}
