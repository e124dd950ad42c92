package dataplane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// answerDrain is the peer's answer: credit unused is given up, by moving the
// delivery-count to its end, as the standard wants it.
func (l *peerLink) answerDrain(advance bool) {
	f := l.s.flow(0)
	l.s.p.locked(func() {
		if advance {
			l.count = l.creditEnd
		} else {
			l.creditEnd = l.count
		}
		f.Handle = wire.Some(l.mine)
		f.DeliveryCount = wire.Some(l.count)
		f.LinkCredit = wire.Some(0)
		f.Drain = true
	})
	l.s.p.send(l.s.mine, &f)
}

func TestLink_drain(t *testing.T) {
	type env struct {
		t  *testing.T
		r  *rig
		l  *Link
		pl *peerLink
	}
	// Each is called with a credit of 10 and a window of 10.
	for name, f := range map[string]func(e env){
		"at 0 needs no frame": func(e env) {
			for range 10 {
				e.pl.deliver(0, true, nil)
			}
			for _, d := range take(e.t, e.l, 10) {
				require.NoError(e.t, e.l.Settle(d.ID, nil))
			}
			n := len(e.r.p.seen())
			require.NoError(e.t, e.l.Drain(e.t.Context()))
			synctest.Wait()
			assert.Len(e.t, e.r.p.seen(), n)
		},
		"full": func(e env) {
			go1(e.t, func() {
				e.r.p.await("drain", func() bool { return last(e.r.p.log) == "flow in count=0 credit=10 drain=true" })
				e.pl.answerDrain(true)
			})
			require.NoError(e.t, e.l.Drain(e.t.Context()))
		},
		"partial": func(e env) {
			go1(e.t, func() {
				e.r.p.await("drain", func() bool { return last(e.r.p.log) == "flow in count=0 credit=10 drain=true" })
				for range 4 {
					e.pl.deliver(0, false, nil)
				}
				e.pl.answerDrain(true)
			})
			require.NoError(e.t, e.l.Drain(e.t.Context()))
			assert.Len(e.t, take(e.t, e.l, 4), 4)
			require.Empty(e.t, e.l.SettleAll([]uint32{0, 1, 2, 3}, accepted))
		},
		"racing, used up and never answered": func(e env) {
			go1(e.t, func() {
				e.r.p.await("drain", func() bool { return last(e.r.p.log) == "flow in count=0 credit=10 drain=true" })
				for range 10 {
					e.pl.deliver(0, false, nil)
				}
			})
			require.NoError(e.t, e.l.Drain(e.t.Context()))
			ids := make([]uint32, 10)
			for i, d := range take(e.t, e.l, 10) {
				ids[i] = d.ID
			}
			require.Empty(e.t, e.l.SettleAll(ids, accepted))
		},
		"without moving the delivery-count": func(e env) {
			go1(e.t, func() {
				e.r.p.await("drain", func() bool { return last(e.r.p.log) == "flow in count=0 credit=10 drain=true" })
				e.pl.deliver(0, true, nil)
				e.pl.answerDrain(false)
			})
			require.NoError(e.t, e.l.Drain(e.t.Context()))
			require.NoError(e.t, e.l.Settle(take(e.t, e.l, 1)[0].ID, nil))
		},
		"in the middle of a delivery": func(e env) {
			e.pl.send(&wire.Transfer{DeliveryID: wire.Some(0), DeliveryTag: []byte("a"), More: true, Settled: true}, nil)
			go1(e.t, func() {
				e.r.p.await("drain", func() bool { return last(e.r.p.log) == "flow in count=0 credit=10 drain=true" })
				e.pl.answerDrain(true)
				e.pl.send(&wire.Transfer{}, nil)
			})
			require.NoError(e.t, e.l.Drain(e.t.Context()))
			require.NoError(e.t, e.l.Settle(take(e.t, e.l, 1)[0].ID, nil))
			e.r.p.locked(func() { e.pl.s.nextMine++ })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{})
				s, as := r.session()
				l, _, pl := r.receiver(s, as, "in", LinkOptions{})
				pl.window = 10
				require.NoError(t, l.Grant(10, true))
				synctest.Wait()
				f(env{t, r, l, pl})
				credit, outstanding := l.Credit()
				assert.Zero(t, credit)
				assert.Zero(t, outstanding)
				// Both sides agree on the delivery-count: all of a new grant can be used.
				require.NoError(t, l.Grant(10, true))
				synctest.Wait()
				for range 10 {
					pl.deliver(0, true, nil)
				}
				take(t, l, 10)
				credit, _ = l.Credit()
				assert.Zero(t, credit)
				assert.NoError(t, l.Err())
			})
		})
	}
}

func TestLink_lateDrainAnswerDoesNotEndTheNextDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(2, true))
		synctest.Wait()
		go1(t, func() {
			r.p.await("drain", func() bool { return last(r.p.log) == "flow in count=0 credit=2 drain=true" })
			pl.deliver(0, true, nil)
			pl.deliver(0, true, nil)
		})
		require.NoError(t, l.Drain(t.Context()))
		for _, d := range take(t, l, 2) {
			require.NoError(t, l.Settle(d.ID, nil))
		}
		require.NoError(t, l.Grant(5, true))
		done := make(chan error, 1)
		go1(t, func() { done <- l.Drain(t.Context()) })
		synctest.Wait()
		late := pl.s.flow(0)
		late.Handle, late.DeliveryCount, late.LinkCredit = wire.Some(pl.mine), wire.Some(2), wire.Some(0)
		late.Drain = true
		r.p.send(pl.s.mine, &late)
		synctest.Wait()
		assert.Empty(t, done)
		pl.deliver(0, true, nil) // still allowed
		pl.answerDrain(true)
		require.NoError(t, <-done)
		assert.NoError(t, l.Err())
	})
}

func TestLink_unansweredDrainEndsWithItsContextAndGrantGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(10, true))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		done := make(chan error, 1)
		go1(t, func() { done <- l.Drain(ctx) })
		synctest.Wait()
		n := len(r.p.seen())
		require.NoError(t, l.Grant(20, true), "nothing is granted while a drain waits")
		synctest.Wait()
		assert.Len(t, r.p.seen(), n)
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(begun))

		require.NoError(t, l.Grant(20, true))
		synctest.Wait()
		assert.Equal(t, "flow in count=0 credit=20 drain=false", last(r.p.seen()))
		// The peer answers the first flow, then grants itself what the second says.
		late := pl.s.flow(0)
		late.Handle, late.DeliveryCount, late.LinkCredit = wire.Some(pl.mine), wire.Some(10), wire.Some(0)
		late.Drain = true
		r.p.send(pl.s.mine, &late)
		synctest.Wait()
		credit, _ := l.Credit()
		assert.Equal(t, 10, credit, "what the peer gave up is free again")
	})
}

func TestLink_drainEndsWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(10, true))
		done := make(chan error, 1)
		go1(t, func() { done <- l.Drain(t.Context()) })
		synctest.Wait()
		pl.detach(true, nil)
		require.ErrorIs(t, <-done, ErrLinkLost)
		require.ErrorIs(t, l.Drain(t.Context()), ErrLinkLost)
	})
}

func TestLink_flowFromBeforeTheDrainDoesNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(2, true))
		synctest.Wait()
		pl.deliver(0, true, nil)
		pl.deliver(0, true, nil)
		for _, d := range take(t, l, 2) {
			require.NoError(t, l.Settle(d.ID, nil))
		}
		require.NoError(t, l.Grant(5, true))
		done := make(chan error, 1)
		go1(t, func() { done <- l.Drain(t.Context()) })
		synctest.Wait()
		// The peer says that it used up its first credit; it has read neither flow.
		early := pl.s.flow(0)
		early.Handle, early.DeliveryCount, early.LinkCredit = wire.Some(pl.mine), wire.Some(2), wire.Some(0)
		r.p.send(pl.s.mine, &early)
		synctest.Wait()
		assert.Empty(t, done)
		pl.deliver(0, true, nil) // still allowed
		pl.answerDrain(true)
		require.NoError(t, <-done)
		assert.NoError(t, l.Err())
	})
}

func TestLink_frozenGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		pl.window = 10
		require.NoError(t, l.Grant(10, true))
		synctest.Wait()
		for range 10 {
			pl.deliver(0, false, nil)
		}
		ds := take(t, l, 10)
		l.Freeze()
		require.NoError(t, l.Drain(t.Context()))
		for _, d := range ds {
			require.NoError(t, l.Settle(d.ID, accepted))
		}
		require.NoError(t, l.Grant(10, true))
		credit, _ := l.Credit()
		assert.Zero(t, credit)
	})
}

// A drain that was given up before its answer came is called off.
func TestLink_thawGivesBackWhatWasNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, _ := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(10, true))
		synctest.Wait()
		l.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Drain(ctx), context.DeadlineExceeded)
		l.Thaw()
		synctest.Wait()
		assert.Equal(t, "flow in count=0 credit=10 drain=false", last(r.p.seen()))
		credit, _ := l.Credit()
		assert.Equal(t, 10, credit)
	})
}
