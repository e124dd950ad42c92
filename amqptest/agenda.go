package amqptest

import (
	"cmp"
	"container/heap"
	"time"
)

// agenda looks at the messages that expire or are scheduled, under the server's
// mutex.
type agenda struct {
	queues map[*queue]struct{} // that have moments
	next   int64               // when the earliest of them is, in Unix nanoseconds; 0: never
}

// moment is when a message is to be looked at.
type moment struct {
	at  int64
	seq uint64
}

// moments is a heap; the message of one may be gone.
type moments []moment

func (h moments) Len() int { return len(h) }
func (h moments) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].seq, h[j].seq)) < 0
}
func (h moments) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *moments) Push(v any)   { *h = append(*h, v.(moment)) }
func (h *moments) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}

// watch makes the agenda look at m, which is in q, when it expires or is due.
func (q *queue) watch(m *message) {
	if 2*(q.len()+len(q.later))+64 < len(q.moments) {
		q.forget()
	}
	for _, at := range [...]int64{m.expires, m.due} {
		if at != 0 {
			heap.Push(&q.moments, moment{at: at, seq: m.seq})
			q.srv.expect(q, at)
		}
	}
}

// forget drops the moments of messages that are gone.
func (q *queue) forget() {
	q.moments = q.moments[:0]
	for _, m := range q.all() {
		for _, at := range [...]int64{m.expires, m.due} {
			if at != 0 {
				q.moments = append(q.moments, moment{at: at, seq: m.seq})
			}
		}
	}
	heap.Init(&q.moments)
}

// expect makes the agenda look at q at that time.
func (s *Server) expect(q *queue, at int64) {
	a := &s.agenda
	if a.queues == nil {
		a.queues = map[*queue]struct{}{}
	}
	a.queues[q] = struct{}{}
	if a.next == 0 || at < a.next {
		a.set(s, at)
	}
}

func (a *agenda) set(s *Server, at int64) {
	a.next = at
	s.later(time.Until(time.Unix(0, at)), s.tick)
}

// tick does what is due. It is called once too often for a moment that was
// the next one until an earlier one came.
func (s *Server) tick() {
	a, now := &s.agenda, time.Now().UnixNano()
	if a.next == 0 || a.next > now {
		return
	}
	a.next = 0
	next := int64(0)
	for q := range a.queues {
		for len(q.moments) > 0 && q.moments[0].at <= now {
			q.look(heap.Pop(&q.moments).(moment).seq, now)
		}
		if len(q.moments) == 0 {
			delete(a.queues, q)
		} else if at := q.moments[0].at; next == 0 || at < next {
			next = at
		}
	}
	if next != 0 && (a.next == 0 || next < a.next) {
		a.set(s, next)
	}
}

// look does with a message what its time says, if it is still there.
func (q *queue) look(seq uint64, now int64) {
	m, scheduled := q.later[seq]
	i := -1
	if !scheduled {
		if i = q.find(seq); i == len(q.waiting) || q.waiting[i].seq != seq {
			return
		}
		m = q.waiting[i]
	}
	switch expired := m.expired(now); {
	case expired && scheduled:
		delete(q.later, seq)
		q.node.bury(m, diedExpired)
	case expired:
		q.node.bury(q.take(i), diedExpired)
	case scheduled && m.due <= now:
		delete(q.later, seq)
		q.giveBack(m)
	default:
		return
	}
	q.touch()
	q.node.expire(nil)
}

func (m *message) expired(now int64) bool { return m.expires != 0 && m.expires <= now }
