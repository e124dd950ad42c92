package dataplane

// run is the ids from first to last, both included.
type run struct{ first, last uint32 }

// runs is a set of ids as the fewest possible runs, in serial order. Adding an id
// next to one that is there makes a run longer; it never holds an id that was not
// added.
type runs struct {
	list []run
	at   int // where the last id went: the next one is usually its neighbour
}

func (r *runs) reset() { r.list, r.at = r.list[:0], 0 }

// add puts id into the set. An id is added once.
func (r *runs) add(id uint32) {
	if len(r.list) == 0 {
		r.list, r.at = append(r.list, run{id, id}), 0
		return
	}
	i := r.at
	if id != r.list[i].last+1 {
		i = r.before(id)
	}
	r.insert(i, id)
}

// before returns the index of the last run that starts before id, -1 if none does.
func (r *runs) before(id uint32) int {
	lo, hi := 0, len(r.list)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if int32(r.list[m].first-id) < 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// insert adds id behind the run at i, joining it to its neighbours if it touches
// them.
func (r *runs) insert(i int, id uint32) {
	left := i >= 0 && r.list[i].last+1 == id
	right := i+1 < len(r.list) && r.list[i+1].first == id+1
	switch {
	case left && right:
		r.list[i].last = r.list[i+1].last
		r.list = append(r.list[:i+1], r.list[i+2:]...)
	case left:
		r.list[i].last = id
	case right:
		i++
		r.list[i].first = id
	default:
		i++
		r.list = append(r.list, run{})
		copy(r.list[i+1:], r.list[i:])
		r.list[i] = run{id, id}
	}
	r.at = max(i, 0)
}
