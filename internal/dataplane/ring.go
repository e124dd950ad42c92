package dataplane

// minRing is the number of slots a ring has at least once it holds anything.
const minRing = 64

// maxSpread is how many slots a ring has at most for each id it holds. Past that,
// the oldest ids move to the map, so that one delivery held for long does not make
// the ring as wide as everything that came after it.
const maxSpread = 16

// ring holds values by serial number. Numbers that follow each other, in whatever
// order they go again, cost an index into a slice; those far off live in a map.
// The zero T means an empty slot.
type ring[T comparable] struct {
	slots  []T    // length a power of two; id lives at id & (len-1)
	lo, hi uint32 // every id in slots is in [lo, hi)
	near   int    // ids in slots
	far    map[uint32]T
}

func (r *ring[T]) slot(id uint32) *T { return &r.slots[id&uint32(len(r.slots)-1)] }

func (r *ring[T]) within(id uint32) bool { return id-r.lo < r.hi-r.lo }

// get returns the value of id, the zero T if there is none.
func (r *ring[T]) get(id uint32) (v T) {
	if r.within(id) {
		if v = *r.slot(id); v != *new(T) {
			return v
		}
	}
	if len(r.far) > 0 {
		v = r.far[id]
	}
	return v
}

// set replaces the value of an id that is there.
func (r *ring[T]) set(id uint32, v T) {
	if r.within(id) && *r.slot(id) != *new(T) {
		*r.slot(id) = v
	} else if _, ok := r.far[id]; ok {
		r.far[id] = v
	}
}

// put stores v under id. It returns false if id is taken.
func (r *ring[T]) put(id uint32, v T) bool {
	if r.get(id) != *new(T) {
		return false
	}
	if r.near == 0 {
		r.lo, r.hi = id, id
	}
	if int32(id-r.lo) < 0 {
		r.putFar(id, v)
		return true
	}
	if id-r.lo >= uint32(len(r.slots)) {
		r.makeRoom(id)
	}
	*r.slot(id) = v
	r.near++
	if int32(id-r.hi) >= 0 {
		r.hi = id + 1
	}
	return true
}

func (r *ring[T]) putFar(id uint32, v T) {
	if r.far == nil {
		r.far = make(map[uint32]T)
	}
	r.far[id] = v
}

// makeRoom widens the slots, within maxSpread, and moves what is then still too
// old to stand in one ring with id to the map.
func (r *ring[T]) makeRoom(id uint32) {
	size := max(len(r.slots), minRing)
	limit := max(minRing, (r.near+1)*maxSpread)
	for uint32(size) <= id-r.lo && size*2 <= limit {
		size *= 2
	}
	for r.lo != r.hi && id-r.lo >= uint32(size) {
		if v := *r.slot(r.lo); v != *new(T) {
			*r.slot(r.lo) = *new(T)
			r.near--
			r.putFar(r.lo, v)
		}
		r.lo++
	}
	if r.lo == r.hi {
		r.lo, r.hi = id, id
	}
	if size == len(r.slots) {
		return
	}
	old := *r
	r.slots = make([]T, size)
	for i := old.lo; i != old.hi; i++ {
		*r.slot(i) = *old.slot(i)
	}
}

// take removes id and returns its value, the zero T if there was none.
func (r *ring[T]) take(id uint32) (v T) {
	if r.within(id) {
		if p := r.slot(id); *p != *new(T) {
			v, *p = *p, *new(T)
			r.near--
			for r.lo != r.hi && *r.slot(r.lo) == *new(T) {
				r.lo++
			}
			return v
		}
	}
	if v = r.far[id]; v != *new(T) {
		delete(r.far, id)
	}
	return v
}

// each calls f for every id held in first to last, both included. The range is
// clipped before any loop. f may take the id it is called with.
func (r *ring[T]) each(first, last uint32, f func(id uint32, v T)) {
	lo, from := r.lo, int64(int32(first-r.lo))
	to := min(from+int64(last-first), int64(r.hi-r.lo)-1)
	for i := max(from, 0); i <= to; i++ {
		id := lo + uint32(i)
		if v := *r.slot(id); v != *new(T) {
			f(id, v)
		}
	}
	for id, v := range r.far {
		if id-first <= last-first {
			f(id, v)
		}
	}
}

// all calls f for every id held. f may take the id it is called with.
func (r *ring[T]) all(f func(id uint32, v T)) {
	for id, hi := r.lo, r.hi; id != hi; id++ {
		if v := *r.slot(id); v != *new(T) {
			f(id, v)
		}
	}
	for id, v := range r.far {
		f(id, v)
	}
}
