package amqptest

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// queue is messages in the order of their arrival, and the links of those who
// take them. It is guarded by the server's mutex.
type queue struct {
	srv     *Server
	node    *node
	waiting []*message // waiting[head:], ascending by seq
	head    int
	links   []*link // of consumers
	turn    int     // index in links of who is asked first
	dirty   bool    // in srv.dirty

	arrivals uint64
	returns  uint64              // counted where they have an order of their own
	later    map[uint64]*message // by seq: not due yet
	moments  moments
}

func (q *queue) len() int { return len(q.waiting) - q.head }

// all returns what waits, in order.
func (q *queue) all() []*message {
	all := q.waiting[q.head:]
	if len(q.later) == 0 {
		return all
	}
	all = slices.AppendSeq(slices.Clone(all), maps.Values(q.later))
	slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// drop forgets what waits.
func (q *queue) drop() {
	q.waiting, q.head, q.moments = nil, 0, nil
	clear(q.later)
}

// touch makes unlock look for something to deliver.
func (q *queue) touch() {
	if !q.dirty {
		q.dirty = true
		q.srv.dirty = append(q.srv.dirty, q)
	}
}

// put appends a message that has just arrived.
func (q *queue) put(m *message) {
	m.seq = q.order(m) | firstArrival | q.arrivals
	q.arrivals++
	if q.len() > 0 && q.waiting[len(q.waiting)-1].seq > m.seq {
		q.giveBack(m)
		return
	}
	if q.isLater(m) {
		return
	}
	if q.head > 0 && len(q.waiting) == cap(q.waiting) {
		n := copy(q.waiting, q.waiting[q.head:])
		clear(q.waiting[n:])
		q.waiting, q.head = q.waiting[:n], 0
	}
	q.waiting = append(q.waiting, m)
	q.touch()
}

// isLater keeps m aside if it is not due yet, and makes the agenda look at it
// when its time comes.
func (q *queue) isLater(m *message) bool {
	if m.expires == 0 && m.due == 0 {
		return false
	}
	later := m.due > time.Now().UnixNano()
	if !later {
		m.due = 0
	} else {
		if q.later == nil {
			q.later = map[uint64]*message{}
		}
		q.later[m.seq] = m
	}
	q.watch(m)
	return later
}

// A message's seq is its order by the dialect, whether it is before or behind
// what has never been delivered, and a serial number.
const (
	orderShift   = 56
	firstArrival = 1 << 48
)

func (q *queue) order(m *message) uint64 {
	return uint64(q.srv.dialect.order(q.node, m)) << orderShift
}

// returned is giveBack for what a consumer has settled.
func (q *queue) returned(m *message) {
	if q.srv.dialect.returnsFirst(q.node) {
		m.seq = q.order(m) | q.returns
		q.returns++
	}
	q.giveBack(m)
}

// lost is giveBack for what was unsettled when its link, or its session, ended.
func (q *queue) lost(m *message, link bool) {
	if q.srv.dialect.lost(q.node, m, link) && q.node.failed(m) {
		q.node.bury(m, diedLimit)
		return
	}
	q.giveBack(m)
}

// giveBack puts a message where it was in the order of arrival.
func (q *queue) giveBack(m *message) {
	q.touch()
	if q.isLater(m) {
		return
	}
	if q.head == 0 {
		space := max(len(q.waiting), 16)
		q.waiting = append(make([]*message, space, 2*space+len(q.waiting)), q.waiting...)
		q.head = space
	}
	at := q.find(m.seq) - q.head
	q.head--
	copy(q.waiting[q.head:], q.waiting[q.head+1:q.head+1+at])
	q.waiting[q.head+at] = m
}

// find returns the index in waiting of the first message that is not before
// seq.
func (q *queue) find(seq uint64) int {
	at, _ := slices.BinarySearchFunc(q.waiting[q.head:], seq, func(w *message, seq uint64) int {
		return cmp.Compare(w.seq, seq)
	})
	return q.head + at
}

// peek returns the index in waiting of the first message that l may have, -1
// if there is none.
func (q *queue) peek(l *link) int {
	from := q.head
	if l.browses {
		from = q.find(l.next)
	}
	for i := from; i < len(q.waiting); i++ {
		m := q.waiting[i]
		if slices.Contains(m.refusedBy, l) || m.expires != 0 && m.expired(time.Now().UnixNano()) {
			continue
		}
		return i
	}
	return -1
}

// take removes the message at index i of waiting.
func (q *queue) take(i int) *message {
	m := q.waiting[i]
	copy(q.waiting[q.head+1:i+1], q.waiting[q.head:i])
	q.waiting[q.head] = nil
	q.head++
	if q.head == len(q.waiting) {
		q.waiting, q.head = q.waiting[:0], 0
	}
	return m
}

// pump shows what waits to those who only look, gives it to the consumers, one
// message each in turn, and ends the drains that have nothing to wait for.
func (q *queue) pump() {
	for i := 0; i < len(q.links); i++ {
		if l := q.links[i]; l.browses {
			q.show(l)
			if l.released {
				i-- // it has left
			}
		}
	}
	for q.len() > 0 && q.deliverOne() {
	}
	for _, l := range q.links {
		l.finishDrain()
	}
	q.node.quench()
}

func (q *queue) deliverOne() bool {
	for i := range q.links {
		at := (q.turn + i) % len(q.links)
		l := q.links[at]
		if l.browses || !l.ready() {
			continue
		}
		if m := q.peek(l); m >= 0 {
			m = q.reordered(l, m)
			q.turn = at + 1
			if l.takes(q.waiting[m]) {
				l.deliver(q.take(m))
			}
			return true
		}
	}
	return false
}

func (q *queue) remove(l *link) {
	if i := slices.Index(q.links, l); i >= 0 {
		q.links = slices.Delete(q.links, i, i+1)
		if i < q.turn {
			q.turn--
		}
	}
}
