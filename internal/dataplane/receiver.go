package dataplane

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Delivery is one delivery as it came.
type Delivery struct {
	ID       uint32 // delivery-id: what Settle takes
	Format   uint32 // message-format
	Settled  bool   // the peer sent it settled
	TooLarge bool   // its payload was over MaxMessage and is not here
	Size     int64  // octets of the whole payload
	Payload  []byte // memory of its own, together with Tag; nil if TooLarge
	Tag      []byte // delivery-tag; nil if TooLarge
}

// receiving is what a link of role receiver has.
type receiving struct {
	ready   chan struct{} // capacity 1; the reader sends, the link's user receives
	noticed chan struct{} // the same
	seen    uint32        // the reader's own: count, with what is not handed over yet

	// limit is the delivery-count up to which credit was granted. The session's lock
	// is held to change it.
	limit atomic.Uint32

	count       uint32 // delivery-count: deliveries whose last frame has come
	window      int    // as the last Grant had it
	outstanding int    // deliveries not settled yet
	queue       []Delivery
	head        int // the first in queue that was not taken
	back        []uint32

	frozen    bool          // no credit is granted
	draining  bool          // a flow with drain is out and not answered
	drainers  int           // calls of Drain that wait
	drainDone chan struct{} // closed when the drain ends well
	stale     wire.OptUint32
}

// takeLocked stores one delivery. It returns false if its id is outstanding
// already.
func (l *Link) takeLocked(it *item, a *after) bool {
	if !it.counted {
		l.count++
	}
	if !it.aborted {
		if !l.s.in.put(it.d.ID, inSlot{link: l, settled: it.d.Settled}) {
			return false
		}
		l.outstanding++
		if l.head > 0 && len(l.queue) == cap(l.queue) {
			n := copy(l.queue, l.queue[l.head:])
			clear(l.queue[n:])
			l.queue, l.head = l.queue[:n], 0
		}
		l.queue = append(l.queue, it.d)
	} else {
		a.notify = append(a.notify, l)
	}
	l.drainedLocked(false, a)
	return true
}

// Deliveries moves up to len(buf) deliveries into buf, in the order they came, and
// returns how many. It never waits. Those that came before the link was lost can
// still be taken after it.
func (l *Link) Deliveries(buf []Delivery) int {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	n := copy(buf, l.queue[l.head:])
	clear(l.queue[l.head : l.head+n])
	if l.head += n; l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
	return n
}

// Queued returns how many deliveries have come that Deliveries has not moved.
func (l *Link) Queued() int {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return len(l.queue) - l.head
}

// TakenBack moves up to len(buf) ids of deliveries that the peer settled by
// itself, or gave an outcome, into buf and returns how many. It never waits. They
// occupy the window until Settle is called for them.
func (l *Link) TakenBack(buf []uint32) int {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	n := copy(buf, l.back)
	l.back = l.back[:copy(l.back, l.back[n:])]
	return n
}

// IsTakenBack reports whether the peer took a delivery back that is outstanding.
func (l *Link) IsTakenBack(id uint32) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	slot := l.s.in.get(id)
	return slot.link == l && slot.back
}

// Ready returns the channel on which a token comes when Deliveries may have
// something: one for everything that one read of the socket brought. Take until it
// returns less than asked for.
func (l *Link) Ready() <-chan struct{} { return l.ready }

// Noticed returns the channel on which a token comes when TakenBack may have
// something, when credit was used up without a delivery, and when the link is lost.
func (l *Link) Noticed() <-chan struct{} { return l.noticed }

// token puts a token on a channel of capacity 1 unless one is there. No lock may be
// held.
func token(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (l *Link) creditLocked() int { return int(ahead(l.limit.Load(), l.count)) }

// Credit returns what the peer may still send, and how many deliveries have come
// and are not settled. Both are 0 once the link is lost.
func (l *Link) Credit() (credit, outstanding int) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.err != nil {
		return 0, 0
	}
	return l.creditLocked(), l.outstanding
}

// Grant raises the credit so that credit and outstanding deliveries together are
// window. It writes a flow if at least half of the window is free, or with force
// if anything is, and does nothing while Drain waits. A smaller window than before
// takes no credit back. It returns ErrLinkLost if the link is not open.
//
// Spec: 2.6.7.
func (l *Link) Grant(window int, force bool) error {
	var a after
	s := l.s
	s.mu.Lock()
	err := l.lostLocked()
	if err == nil {
		l.grantLocked(min(window, maxStep), force, &a)
	}
	s.mu.Unlock()
	a.run(s.c)
	return err
}

func (l *Link) grantLocked(window int, force bool, a *after) {
	l.window = window
	if l.frozen {
		return
	}
	free := window - l.outstanding - l.creditLocked()
	if free <= 0 || !force && free*2 < window || l.draining && l.drainers > 0 {
		return
	}
	if l.draining {
		// Given up, but its answer may still come.
		l.draining, l.drainDone = false, nil
		l.stale = wire.Some(l.limit.Load())
	}
	l.limit.Store(l.count + uint32(window-l.outstanding))
	l.appendFlowLocked(a)
}

// Freeze makes every Grant until Thaw do nothing, so that what Drain takes back
// stays back.
func (l *Link) Freeze() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.frozen = true
}

// Thaw lets Grant grant again after Freeze. A drain that was given up is called
// off: what it did not take back is credit as before.
//
// Spec: 2.6.7.
func (l *Link) Thaw() {
	var a after
	l.s.mu.Lock()
	l.frozen = false
	if l.draining && l.drainers == 0 && l.lostLocked() == nil {
		l.draining, l.drainDone = false, nil
		l.appendFlowLocked(&a)
	}
	l.s.mu.Unlock()
	a.run(l.s.c)
}

// Drain takes the credit back: it asks the peer to use it or give it up, and
// returns nil when there is none left. It may run beside Deliveries and Settle. It
// returns an error that wraps ctx's if ctx ends first, after which the caller has
// to detach or to grant anew, and ErrLinkLost if the link is not open.
//
// Spec: 2.6.7, 2.6.10.
func (l *Link) Drain(ctx context.Context) error {
	var a after
	s := l.s
	s.mu.Lock()
	if err := l.lostLocked(); err != nil || l.creditLocked() == 0 {
		s.mu.Unlock()
		return err
	}
	if !l.draining {
		l.draining, l.drainDone = true, make(chan struct{})
		l.appendFlowLocked(&a)
	}
	done := l.drainDone
	l.drainers++
	s.mu.Unlock()
	a.run(s.c)

	var err error
	select {
	case <-done:
	case <-l.done:
		err = both(ErrLinkLost, l.Err())
	case <-ctx.Done():
		err = fmt.Errorf("drain: %w", ctx.Err())
	}
	s.mu.Lock()
	l.drainers--
	s.mu.Unlock()
	return err
}

// drainedLocked ends a drain if no credit is left.
func (l *Link) drainedLocked(answered bool, a *after) {
	if !l.draining || l.limit.Load() != l.count {
		return
	}
	if !answered {
		// The peer used the credit before it saw the flow. Its answer may still come,
		// and must not be taken for that of a later drain.
		l.stale = wire.Some(l.count)
	}
	l.draining = false
	a.close = append(a.close, l.drainDone)
	l.drainDone = nil
}

// endReceivingLocked clears what the link has outstanding. What was not taken yet
// stays for Deliveries.
func (l *Link) endReceivingLocked(a *after) {
	l.s.in.all(func(id uint32, v inSlot) {
		if v.link == l {
			l.s.in.take(id)
		}
	})
	l.outstanding = 0
	a.notify = append(a.notify, l)
}
