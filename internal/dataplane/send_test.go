package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestLink_sendsInOrderAndGetsOutcomes(t *testing.T) {
	r := newRig(t, rigOptions{})
	s, as := r.session()
	l, _, pl := r.sender(s, as, "out")
	pl.credit(100)
	var sent [][]byte
	var receipts []*Receipt
	for i := range 100 {
		b := []byte{byte(i)}
		rc, err := l.Send(t.Context(), b, SendOptions{})
		require.NoError(t, err)
		assert.NoError(t, rc.Err())
		sent, receipts = append(sent, b), append(receipts, rc)
	}
	r.p.await("all", func() bool { return len(pl.bodies) == 100 })
	assert.True(t, sameBodies(sent, pl.received()))
	pl.s.accept(0, 98)
	pl.s.settle(&wire.Disposition{
		Role: wire.RoleReceiver, First: 99, Last: 99, Settled: true,
		State: wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "amqp:not-allowed"}},
	})
	for _, rc := range receipts[:99] {
		assert.Equal(t, wire.StateAccepted, outcome(t, rc).Kind)
	}
	st := outcome(t, receipts[99])
	require.Equal(t, wire.StateRejected, st.Kind)
	assert.Equal(t, wire.Symbol("amqp:not-allowed"), st.Error.Condition)
}

func TestLink_waitsForCreditWindowAndRoomExactly(t *testing.T) {
	// 513 octets a frame, a window of one transfer, a buffer of one frame.
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{
			Options: Options{OutLimit: 600},
			peer:    peerOptions{open: wire.Open{MaxFrameSize: 513}, begin: wire.Begin{IncomingWindow: 1}},
		})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		body := bytes.Repeat([]byte("x"), 10_000)
		var wg sync.WaitGroup
		wg.Go(func() {
			rc, err := l.Send(t.Context(), body, SendOptions{})
			if assert.NoError(t, err) {
				assert.Equal(t, wire.StateAccepted, outcome(t, rc).Kind)
			}
		})
		synctest.Wait()
		assert.Empty(t, pl.received(), "no credit")
		pl.credit(1)
		for n := 1; ; n++ {
			synctest.Wait()
			var frames, done int
			r.p.locked(func() { frames, done = int(pl.s.nextIncoming), len(pl.bodies) })
			require.Equal(t, n, frames, "one transfer for each window of one")
			if done == 1 {
				break
			}
			f := pl.s.flow(1)
			r.p.send(pl.s.mine, &f)
		}
		assert.True(t, sameBodies([][]byte{body}, pl.received()))
		pl.s.accept(0, 0)
		wg.Wait()
	})
}

// Many senders over a small buffer: whatever order they come in, the peer sees
// delivery-ids in order, and no frame beyond its window or credit.
func TestLink_manySendersKeepIDsWindowAndCredit(t *testing.T) {
	r := newRig(t, rigOptions{
		Options: Options{OutLimit: 1000},
		peer:    peerOptions{open: wire.Open{MaxFrameSize: 512}, begin: wire.Begin{IncomingWindow: 3}},
	})
	s, as := r.session()
	const links, perLink, each = 4, 16, 8
	var wg sync.WaitGroup
	var ends [links]*peerLink
	for i := range links {
		l, _, pl := r.sender(s, as, string(rune('a'+i)))
		ends[i] = pl
		r.p.locked(func() { pl.s.autoAccept = true })
		for j := range perLink {
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			wg.Go(func() {
				for k := range each {
					body := make([]byte, 4+rnd.IntN(3000))
					binary.BigEndian.PutUint32(body, uint32(j*each+k))
					rc, err := l.Send(t.Context(), body, SendOptions{})
					if assert.NoError(t, err) {
						assert.Equal(t, wire.StateAccepted, outcome(t, rc).Kind)
					}
				}
			})
		}
	}
	var feeding sync.WaitGroup
	stop := make(chan struct{})
	feeding.Go(func() {
		rnd := rand.New(rand.NewPCG(7, 7))
		for {
			select {
			case <-stop:
				return
			default:
			}
			pl := ends[rnd.IntN(links)]
			pl.creditWith(pl.s.flow(uint32(rnd.IntN(4))), uint32(rnd.IntN(3)))
		}
	})
	wg.Wait()
	close(stop)
	feeding.Wait()
	for _, pl := range ends {
		seen := make(map[uint32]bool)
		for _, b := range pl.received() {
			seen[binary.BigEndian.Uint32(b)] = true
		}
		assert.Len(t, seen, perLink*each)
	}
}

func TestLink_sendsOneLineFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				_, err := l.Send(t.Context(), []byte{byte(i)}, SendOptions{Settled: true})
				assert.NoError(t, err)
			})
			synctest.Wait() // in line before the next
		}
		for range 20 {
			pl.credit(1)
			synctest.Wait()
		}
		wg.Wait()
		for i, b := range pl.received() {
			assert.Equal(t, []byte{byte(i)}, b)
		}
		assert.Len(t, pl.received(), 20)
	})
}

func TestLink_contextStormLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{
			Options: Options{OutLimit: 700},
			peer:    peerOptions{open: wire.Open{MaxFrameSize: 512}, begin: wire.Begin{IncomingWindow: 2}},
		})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		r.p.locked(func() { pl.s.autoAccept = true })
		var wg sync.WaitGroup
		var confirmed, notSent, uncertain atomic.Int64
		for i := range 64 {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(2000))*time.Microsecond)
					rc, err := l.Send(ctx, make([]byte, rnd.IntN(2000)), SendOptions{})
					cancel()
					switch {
					case err == nil:
						outcome(t, rc)
						confirmed.Add(1)
					case errors.Is(err, ErrNotSent):
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						assert.Nil(t, rc)
						notSent.Add(1)
					default:
						assert.ErrorIs(t, err, ErrUncertain)
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						assert.Equal(t, wire.StateAccepted, outcome(t, rc).Kind, "finished all the same")
						uncertain.Add(1)
					}
				}
			})
		}
		var feeding sync.WaitGroup
		stop := make(chan struct{})
		feeding.Go(func() {
			for tick := time.NewTicker(50 * time.Microsecond); ; {
				select {
				case <-tick.C:
					pl.creditWith(pl.s.flow(2), 1)
				case <-stop:
					tick.Stop()
					return
				}
			}
		})
		wg.Wait()
		close(stop)
		feeding.Wait()
		assert.Len(t, pl.received(), int(confirmed.Load()+uncertain.Load()))
		assert.NotZero(t, notSent.Load())
		assert.NotZero(t, uncertain.Load())
		assert.NotZero(t, confirmed.Load())
		assert.NoError(t, r.c.Err())
	})
}
