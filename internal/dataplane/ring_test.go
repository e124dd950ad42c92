package dataplane

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The ring against a map, with ids that follow each other, that are held for long,
// that jump, and that wrap.
func TestRing_holdsWhatAMapWouldHold(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var r ring[int]
		model := make(map[uint32]int)
		var ids []uint32
		next := uint32(1<<32 - 5000)
		for i := range modelSize(20_000) {
			switch rnd.IntN(5) {
			case 0, 1:
				if len(ids) > 200 {
					continue
				}
				if rnd.IntN(2000) == 0 {
					next += rnd.Uint32() >> 2
				}
				require.Equal(t, model[next] == 0, r.put(next, i+1))
				if model[next] == 0 {
					model[next] = i + 1
					ids = append(ids, next)
				}
				next++
			case 2, 3:
				if len(ids) == 0 {
					continue
				}
				// Mostly near the front; the very first one is held.
				j := min(1+rnd.IntN(8), len(ids)-1)
				if rnd.IntN(500) == 0 {
					j = 0
				}
				id := ids[j]
				ids = append(ids[:j], ids[j+1:]...)
				require.Equal(t, model[id], r.get(id))
				require.Equal(t, model[id], r.take(id))
				require.Zero(t, r.take(id))
				delete(model, id)
			case 4:
				first := next - uint32(rnd.IntN(400))
				last := first + uint32(rnd.IntN(300))
				want := 0
				for id := range model {
					if id-first <= last-first {
						want++
					}
				}
				r.each(first, last, func(id uint32, v int) {
					require.Equal(t, model[id], v)
					want--
				})
				require.Zero(t, want)
			}
			require.Equal(t, len(model), r.near+len(r.far))
			require.LessOrEqual(t, len(r.slots), max(minRing, 256*maxSpread*2))
		}
		n := 0
		r.all(func(id uint32, v int) {
			require.Equal(t, model[id], r.take(id))
			n++
		})
		assert.Equal(t, len(model), n)
		assert.Zero(t, r.near+len(r.far))
	}
}

// One delivery held while 200,000 pass does not make the ring as wide.
func TestRing_staysSmallBehindAStraggler(t *testing.T) {
	var r ring[int]
	require.True(t, r.put(0, 1))
	for id := uint32(1); id < 200_000; id++ {
		require.True(t, r.put(id, 1))
		r.take(id)
	}
	assert.LessOrEqual(t, len(r.slots), 4*minRing)
	assert.Equal(t, 1, r.get(0))
	assert.False(t, r.put(0, 2))
	r.set(0, 3)
	assert.Equal(t, 3, r.take(0))
}

func TestRing_clipsEveryRange(t *testing.T) {
	var r ring[int]
	for id := uint32(100); id < 110; id++ {
		r.put(id, 1)
	}
	count := func(first, last uint32) (n int) {
		r.each(first, last, func(uint32, int) { n++ })
		return n
	}
	assert.Equal(t, 10, count(0, maxStep))
	assert.Equal(t, 10, count(100, 100+maxStep-1))
	assert.Equal(t, 1, count(109, 1<<31))
	assert.Equal(t, 1, count(1<<31+200, 100))
	assert.Equal(t, 0, count(110, 110+maxStep))
	assert.Equal(t, 0, count(0, 99))
	assert.Equal(t, 0, count(1<<31, 1<<32-1))
}

func TestRing_takesIDsFromBeforeItsFirst(t *testing.T) {
	var r ring[int]
	for _, id := range []uint32{100, 50, 1<<31 + 60, 99} {
		require.True(t, r.put(id, int(id)))
		require.False(t, r.put(id, 1))
	}
	n := 0
	r.each(50, 100, func(id uint32, v int) {
		require.Equal(t, int(id), v)
		r.set(id, 7)
		n++
	})
	assert.Equal(t, 3, n)
	for _, id := range []uint32{50, 99, 100} {
		assert.Equal(t, 7, r.take(id))
	}
	assert.Equal(t, 1<<31+60, r.take(1<<31+60))
}

func TestRing_eachTakesTheWidestRange(t *testing.T) {
	first := uint32(1<<32 - 3)
	var r ring[int]
	for i := range uint32(10) {
		require.True(t, r.put(first+i, int(i)+1))
	}
	for from, want := range map[uint32]int{first: 10, first + 4: 6, first - 4: 10, first + 10: 0} {
		n := 0
		r.each(from, from+maxStep, func(uint32, int) { n++ })
		assert.Equal(t, want, n, "from %d", from)
	}
}
