package dataplane

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// sendAll sends n empty messages.
func sendAll(t testing.TB, l *Link, n int) []*Receipt {
	t.Helper()
	var out []*Receipt
	for range n {
		r, err := l.Send(context.Background(), nil, SendOptions{})
		require.NoError(t, err)
		out = append(out, r)
	}
	return out
}

func isDone(r *Receipt) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

func TestReceipt_takesEachKindOfDisposition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		pl.credit(10)
		rs := sendAll(t, l, 8)
		say := func(first, last uint32, settled bool, st wire.State) {
			pl.s.settle(&wire.Disposition{Role: wire.RoleReceiver, First: first, Last: last, Settled: settled, State: st})
			synctest.Wait()
		}
		say(0, 0, false, wire.State{Kind: wire.StateReceived, SectionNumber: 1})
		say(0, 0, false, wire.State{})
		assert.False(t, isDone(rs[0]), "received, or nothing, unsettled: kept")

		say(0, 2, false, wire.State{Kind: wire.StateReleased})
		for _, rc := range rs[:3] {
			assert.Equal(t, wire.StateReleased, outcome(t, rc).Kind)
		}
		r.p.locked(func() { assert.Equal(t, []run{{0, 2}}, pl.s.confirmed, "mode second: we settle, once") })

		say(3, 3, true, wire.State{})
		say(4, 4, true, wire.State{Kind: wire.StateReceived})
		for _, rc := range rs[3:5] {
			require.True(t, isDone(rc))
			require.ErrorIs(t, rc.Err(), ErrUncertain, "settled without an outcome")
		}
		// Gaps, what is done already, what was never sent, the other role.
		say(0, 1<<20, false, wire.State{})
		r.p.send(pl.s.mine, &wire.Disposition{Role: wire.RoleSender, First: 0, Last: 100, Settled: true})
		say(2, maxStep-1, true, wire.State{Kind: wire.StateModified, DeliveryFailed: true})
		for _, rc := range rs[5:] {
			st := outcome(t, rc)
			assert.Equal(t, wire.StateModified, st.Kind)
			assert.True(t, st.DeliveryFailed)
		}
		s.mu.Lock()
		assert.Zero(t, s.out.near+len(s.out.far))
		s.mu.Unlock()
		assert.Equal(t, wire.State{}, (&Receipt{done: make(chan struct{})}).Outcome())
	})
}

func TestLink_sendsSettledWithoutAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		pl.credit(1)
		rc, err := l.Send(t.Context(), []byte("x"), SendOptions{Settled: true, Format: 5})
		require.NoError(t, err)
		assert.Equal(t, wire.StateNone, outcome(t, rc).Kind)
		synctest.Wait()
		assert.Len(t, pl.received(), 1)
	})
}

func TestLink_refusesWhatIsOverThePeersLimit(t *testing.T) {
	r := newRig(t, rigOptions{peer: peerOptions{maxMessage: 10}})
	s, as := r.session()
	l, _, pl := r.sender(s, as, "out")
	assert.EqualValues(t, 10, l.Attached().MaxMessageSize)
	pl.credit(5)
	_, err := l.Send(t.Context(), make([]byte, 11), SendOptions{})
	var size *SizeError
	require.ErrorAs(t, err, &size)
	require.ErrorIs(t, err, ErrNotSent)
	assert.Equal(t, SizeError{11, 10}, *size)
	_, err = l.Send(t.Context(), make([]byte, 10), SendOptions{})
	require.NoError(t, err)
}

func TestLink_givesCreditBackWhenThePeerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		pl.credit(10)
		sendAll(t, l, 3)
		drain := func() {
			f := pl.s.flow(0)
			f.Drain = true
			pl.creditWith(f, 0)
			synctest.Wait()
		}
		drain()
		assert.Equal(t, "flow out count=10 credit=0 drain=true", last(r.p.seen()))
		r.p.locked(func() { pl.count = 10 })
		drain()
		assert.Len(t, r.p.seen(), 3+2, "answered at nothing to give back, too")
		_, err := l.Send(ended(), nil, SendOptions{})
		require.ErrorIs(t, err, ErrNotSent)
		pl.credit(1)
		synctest.Wait()
		sendAll(t, l, 1)
	})
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func last(s []string) string { return s[len(s)-1] }

func TestSession_answersEchoOnceForALinkOrItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		f := pl.s.flow(0)
		f.Echo = true
		r.p.send(pl.s.mine, &f)
		synctest.Wait()
		assert.Equal(t, "flow", last(r.p.seen()))
		pl.creditWith(f, 4)
		synctest.Wait()
		assert.Equal(t, "flow out count=0 credit=4 drain=false", last(r.p.seen()))
		f.Echo = false
		f.Handle = wire.Some(pl.mine) // no link-credit: the session alone
		r.p.send(pl.s.mine, &f)
		synctest.Wait()
		assert.Len(t, sendAll(t, l, 4), 4)
	})
}

func TestLink_lossMakesNotSentOrUncertain(t *testing.T) {
	losses := map[string]func(*rig, *peerLink){
		"detach":     func(_ *rig, pl *peerLink) { pl.detach(true, &wire.Error{Condition: "amqp:internal-error"}) },
		"end":        func(_ *rig, pl *peerLink) { pl.s.end(&wire.Error{Condition: "amqp:internal-error"}) },
		"connection": func(r *rig, _ *peerLink) { r.p.hang() },
		"abort":      func(r *rig, _ *peerLink) { r.c.Abort(nil) },
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{peer: peerOptions{begin: wire.Begin{IncomingWindow: 2}}})
				s, as := r.session()
				l, _, pl := r.sender(s, as, "out")
				pl.credit(10)
				done := sendAll(t, l, 1)[0]
				// The second message is half out when the window ends, the third waits.
				half := make(chan error)
				var rc *Receipt
				go1(t, func() {
					var err error
					rc, err = l.Send(context.Background(), make([]byte, 100_000), SendOptions{})
					half <- err
				})
				synctest.Wait()
				waiting := make(chan error)
				go1(t, func() {
					_, err := l.Send(context.Background(), nil, SendOptions{})
					waiting <- err
				})
				synctest.Wait()
				lose(r, pl)
				err := <-half
				require.ErrorIs(t, err, ErrUncertain)
				require.NotErrorIs(t, err, ErrNotSent)
				require.NotNil(t, rc)
				require.ErrorIs(t, <-waiting, ErrNotSent)
				<-rc.Done()
				require.ErrorIs(t, rc.Err(), ErrUncertain)
				<-done.Done()
				require.ErrorIs(t, done.Err(), ErrUncertain)
				<-l.Done()
				require.ErrorIs(t, done.Err(), l.Err())
				_, err = l.Send(context.Background(), nil, SendOptions{})
				require.ErrorIs(t, err, ErrNotSent)
				require.ErrorIs(t, err, ErrLinkLost)
			})
		})
	}
}

// go1 runs f in a goroutine that the test waits for.
func go1(t testing.TB, f func()) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	wg.Go(f)
}

// A peer may give an outcome before it has all of a message. The payload is still
// copied from then, so Done, after which the caller may reuse it, has to wait.
func TestReceipt_isNotDoneBeforeTheLastFrameIsQueued(t *testing.T) {
	for name, finish := range map[string]func(pl *peerLink, l *Link){
		"queued": func(pl *peerLink, _ *Link) {
			f := pl.s.flow(10)
			pl.s.p.send(pl.s.mine, &f)
		},
		"link lost": func(pl *peerLink, _ *Link) { pl.detach(true, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{peer: peerOptions{open: wire.Open{MaxFrameSize: 512}, begin: wire.Begin{IncomingWindow: 1}}})
				s, as := r.session()
				l, _, pl := r.sender(s, as, "out")
				pl.creditWith(pl.s.flow(1), 1)
				ctx, cancel := context.WithCancel(t.Context())
				go1(t, func() {
					r.p.await("the first frame", func() bool { return pl.more })
					cancel()
				})
				receipt, err := l.Send(ctx, make([]byte, 600), SendOptions{})
				require.ErrorIs(t, err, ErrUncertain)
				pl.s.accept(0, 0)
				synctest.Wait()
				assert.False(t, isDone(receipt))
				finish(pl, l)
				assert.Equal(t, wire.StateAccepted, outcome(t, receipt).Kind)
			})
		})
	}
}
