package amqpflow

import (
	"sync"
	"time"
)

// inbox holds deliveries that no handler has begun, oldest first. The link's
// credit bounds it. The workers of a subscription share one, lanes have one
// each.
type inbox struct {
	ready chan struct{} // capacity 1; push, take and close send, workers receive, nobody closes it

	mu     sync.Mutex
	items  []*Delivery
	head   int
	closed bool
	paused bool // nothing is taken out, but by all
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// close wakes the workers for the last time.
func (in *inbox) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.signal()
}

// pause makes the inbox keep what it holds, or not.
func (in *inbox) pause(paused bool) {
	in.mu.Lock()
	resumed := in.paused && !paused
	in.paused = paused
	in.mu.Unlock()
	if resumed {
		in.signal()
	}
}

func (in *inbox) signal() { signal(in.ready) }

// push appends deliveries of one link, unless that is lost: purge may have been
// called for it.
func (in *inbox) push(ds []*Delivery) {
	if len(ds) == 0 {
		return
	}
	in.mu.Lock()
	if isClosed(ds[0].from.link.Done()) {
		in.mu.Unlock()
		return
	}
	if in.head > 0 && len(in.items)+len(ds) > cap(in.items) {
		n := copy(in.items, in.items[in.head:])
		clear(in.items[n:])
		in.items, in.head = in.items[:n], 0
	}
	in.items = append(in.items, ds...)
	in.mu.Unlock()
	in.signal()
}

// take appends up to limit of the oldest deliveries to ds, all of one link, and
// says whether the inbox is closed. What it leaves behind is for another
// worker, which it wakes.
func (in *inbox) take(ds []*Delivery, limit int) (taken []*Delivery, closed bool) {
	in.mu.Lock()
	if in.paused {
		closed = in.closed
		in.mu.Unlock()
		return ds, closed
	}
	for in.head < len(in.items) && len(ds) < limit {
		d := in.items[in.head]
		if len(ds) > 0 && ds[0].from != d.from {
			break
		}
		ds = append(ds, d)
		in.items[in.head] = nil
		in.head++
	}
	more := in.head < len(in.items)
	if !more {
		in.items, in.head = in.items[:0], 0
	}
	closed = in.closed
	in.mu.Unlock()
	if more || closed {
		in.signal()
	}
	return ds, closed
}

// all takes everything out, paused or not, but what the peer sent settled where
// that is to stay.
func (in *inbox) all(settledStays bool) (ds []*Delivery) {
	in.mu.Lock()
	defer in.mu.Unlock()
	kept := in.items[:0]
	for _, d := range in.items[in.head:] {
		if d.settled && settledStays {
			kept = append(kept, d)
		} else {
			ds = append(ds, d)
		}
	}
	clear(in.items[len(kept):])
	in.items, in.head = kept, 0
	return ds
}

func (in *inbox) len() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.items) - in.head
}

// oldest returns how many deliveries may be taken and when the oldest came; the
// time is kept for batches alone.
func (in *inbox) oldest() (n int, came time.Time, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.paused {
		return 0, came, in.closed
	}
	if n = len(in.items) - in.head; n > 0 {
		came = in.items[in.head].came()
	}
	return n, came, in.closed
}

// remove takes one delivery out, nil if it is not there.
func (in *inbox) remove(r *receiving, id uint32) *Delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := in.head; i < len(in.items); i++ {
		if d := in.items[i]; d.from == r && d.id == id {
			in.items = append(in.items[:i], in.items[i+1:]...)
			return d
		}
	}
	return nil
}

// purge drops the deliveries of a link that is gone.
func (in *inbox) purge(r *receiving) {
	in.mu.Lock()
	defer in.mu.Unlock()
	kept := in.items[:0]
	for _, d := range in.items[in.head:] {
		if d.from != r {
			kept = append(kept, d)
		}
	}
	clear(in.items[len(kept):])
	in.items, in.head = kept, 0
}
