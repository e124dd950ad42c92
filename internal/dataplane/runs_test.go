package dataplane

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// settledInOrder gives back the ids of a window of deliveries in the order in which
// so many workers, each slow in its own way, finish them.
func settledInOrder(rnd *rand.Rand, n, workers int) []int {
	order := make([]int, 0, n)
	busy := make([]int, 0, workers)
	for next := 0; len(order) < n; {
		for len(busy) < workers && next < n {
			busy = append(busy, next)
			next++
		}
		i := rnd.IntN(len(busy))
		order = append(order, busy[i])
		busy = slices.Delete(busy, i, i+1)
	}
	return order
}

// Whatever order ids are added in, the runs hold exactly those, and as few as there
// can be.
func TestRuns_areExactAndFewest(t *testing.T) {
	total := modelSize(1_000_000)
	for _, workers := range []int{1, 2, 3, 8, 32} {
		rnd := rand.New(rand.NewPCG(1, uint64(workers)))
		base := uint32(1<<32 - total/2) // wraps
		var r runs
		pending := make(map[uint32]bool)
		flushes, written := 0, 0
		for _, i := range settledInOrder(rnd, total/5, workers) {
			id := base + uint32(i)
			r.add(id)
			pending[id] = true
			if rnd.IntN(60) > 0 {
				continue
			}
			for j, x := range r.list {
				for id := x.first; ; id++ {
					require.True(t, pending[id], "%d was not asked for", id)
					delete(pending, id)
					if id == x.last {
						break
					}
				}
				if j > 0 {
					require.Greater(t, int32(x.first-r.list[j-1].last), int32(1), "runs that touch")
				}
			}
			require.Empty(t, pending)
			flushes, written = flushes+1, written+len(r.list)
			r.reset()
		}
		assert.Less(t, written, flushes*(workers+1)+1)
		t.Logf("%2d workers: %.1f runs a flush of 60", workers, float64(written)/float64(flushes))
	}
}

// The same over a connection: the peer of the rig fails the test for any id that it
// has not sent or that is settled twice.
func TestLink_manyWorkersSettleInFewDispositions(t *testing.T) {
	const workers, window = 8, 64
	total := modelSize(20_000)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{Window: window})
		pl.window = window
		work := make(chan uint32, window)
		done := make(chan struct{}, window)
		var wg sync.WaitGroup
		for i := range workers {
			rnd := rand.New(rand.NewPCG(2, uint64(i)))
			wg.Go(func() {
				for id := range work {
					pass(time.Duration(rnd.IntN(40)) * time.Microsecond)
					st := accepted
					if id%1000 == 0 {
						st = &wire.State{Kind: wire.StateReleased}
					}
					assert.NoError(t, l.Settle(id, st))
					done <- struct{}{}
				}
			})
		}
		require.NoError(t, l.Grant(window, true))
		var feeder sync.WaitGroup
		feeder.Go(func() {
			for range total {
				r.p.await("credit", func() bool { return ahead(pl.creditEnd, pl.count) > 0 })
				pl.deliver(0, false, nil)
			}
		})
		buf := make([]Delivery, window)
		for settled := 0; settled < total; {
			select {
			case <-l.Ready():
				for _, d := range buf[:l.Deliveries(buf)] {
					work <- d.ID
				}
			case <-done:
				settled++
				require.NoError(t, l.Grant(window, false))
			}
		}
		close(work)
		wg.Wait()
		feeder.Wait()
		r.p.await("settlements", func() bool { return len(pl.s.settled) == total })
		r.p.locked(func() {
			assert.Empty(t, pl.s.outstanding)
			assert.Equal(t, wire.StateReleased, pl.s.settled[0].Kind)
			assert.Equal(t, wire.StateAccepted, pl.s.settled[1].Kind)
			t.Logf("%d dispositions for %d settlements", pl.s.dispositions, total)
			assert.Less(t, pl.s.dispositions, total/4)
		})
	})
}
