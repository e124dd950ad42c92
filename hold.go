package amqpflow

import (
	"container/heap"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// holds are a subscription's retries that wait for their backoff. Each keeps
// its place in the window. One timer serves them all.
type holds struct {
	s *Subscription

	// settling is held from taking deliveries out until they are settled, so
	// that end leaves none under way.
	settling sync.Mutex

	mu    sync.Mutex
	queue heldQueue
	timer *time.Timer // calls fire when the first of queue is due; nil before the first hold
	shut  bool        // nothing is held any more
}

// held is a retry that waits.
type held struct {
	d     *Delivery
	state *wire.State // what it is settled with
	due   time.Time
	err   error         // why it is a retry
	took  time.Duration // of its handler
	lane  *worker       // which then tries it again itself; nil: it is settled
}

// add holds a claimed delivery, and says whether it does: not beyond half of
// the window, which those that wait in a lane may exceed.
func (h *holds) add(e *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	full := e.lane == nil && 2*len(h.queue) >= h.s.opts.Credit
	if h.shut || full || isClosed(e.d.from.link.Done()) || e.d.from.link.IsTakenBack(e.d.id) {
		return false
	}
	heap.Push(&h.queue, e)
	if h.queue[0] == e {
		h.armLocked()
	}
	return true
}

func (h *holds) armLocked() {
	left := time.Until(h.queue[0].due)
	if h.timer == nil {
		h.timer = time.AfterFunc(left, h.fire)
		return
	}
	h.timer.Reset(left)
}

// fire ends the holds that are due. A lane goes on with its delivery.
func (h *holds) fire() {
	h.settle(func() (due []*held) {
		now := time.Now()
		for len(h.queue) > 0 && !h.queue[0].due.After(now) {
			e := heap.Pop(&h.queue).(*held)
			if e.lane == nil {
				due = append(due, e)
			}
			e.wake()
		}
		if len(h.queue) > 0 {
			h.armLocked()
		}
		return due
	})
}

// end ends every hold, and holds nothing any more until resume.
func (h *holds) end() {
	h.settle(func() []*held {
		h.shut = true
		return h.takeLocked(func(*held) bool { return true })
	})
}

// drop ends the holds of a link that is gone.
func (h *holds) drop(r *receiving) {
	h.settle(func() []*held {
		return h.takeLocked(func(e *held) bool { return e.d.from == r })
	})
}

// resume lets deliveries be held after end.
func (h *holds) resume() {
	h.mu.Lock()
	h.shut = false
	h.mu.Unlock()
}

// takenBack ends the hold of a delivery that the peer took back.
func (h *holds) takenBack(r *receiving, id uint32) {
	h.settle(func() []*held {
		return h.takeLocked(func(e *held) bool { return e.d.from == r && e.d.id == id })
	})
}

// takeLocked takes out what matches, oldest delivery first.
func (h *holds) takeLocked(match func(*held) bool) (taken []*held) {
	kept := h.queue[:0]
	for _, e := range h.queue {
		if match(e) {
			taken = append(taken, e)
		} else {
			kept = append(kept, e)
		}
	}
	clear(h.queue[len(kept):])
	h.queue = kept
	heap.Init(&h.queue)
	slices.SortFunc(taken, func(a, b *held) int { return int(int32(a.d.id - b.d.id)) })
	return taken
}

// settle settles what take, which is called under the lock, takes out.
func (h *holds) settle(take func() []*held) {
	h.settling.Lock()
	h.mu.Lock()
	taken := take()
	if len(h.queue) == 0 && h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	failed := make([]error, len(taken))
	for i, e := range taken {
		if failed[i] = h.s.settleClaimed(e.d, e.state, Modified); failed[i] == nil {
			h.s.counts.held.Add(1)
		}
	}
	h.settling.Unlock()
	for i, e := range taken {
		e.wake()
		h.tell(e, failed[i])
	}
}

// wake tells the lane, if any, that the hold has ended.
func (e *held) wake() {
	if e.lane != nil {
		signal(e.lane.resume)
	}
}

// tell reports a hold that has ended with a settlement.
func (h *holds) tell(e *held, failed error) {
	h.s.report(e.d, Modified, e.err, failed, e.took, slog.LevelDebug)
}

func (h *holds) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.queue)
}

// heldQueue is a heap, by due.
type heldQueue []*held

func (q heldQueue) Len() int           { return len(q) }
func (q heldQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q heldQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *heldQueue) Push(e any)        { *q = append(*q, e.(*held)) }

func (q *heldQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
