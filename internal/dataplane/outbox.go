package dataplane

import (
	"sync"
	"sync/atomic"
	"time"
)

// settleDelay is how long settled dispositions wait for company.
const settleDelay = time.Millisecond

type mark uint8

const (
	markNone mark = iota
	markSoft      // has dispositions that may wait
	markUrgent
)

// outbox is what waits to be written, and who has more to add.
type outbox struct {
	limit int
	peer  atomic.Uint32 // the largest frame the peer takes
	wake  chan struct{} // capacity 1; anybody sends, the writer receives
	timer *time.Timer   // runs while only soft sessions wait

	flushed chan struct{} // closed by the writer once nothing is left after finish

	mu            sync.Mutex
	buf           []byte
	soft, urgent  []*Session
	spare         []byte     // the buffer written last
	spareS        []*Session // the lists emptied last
	spareU        []*Session
	asleep        bool // the writer waits for wake
	shut          bool // our CLOSE is in buf: nothing may follow it
	finishing     bool
	closedFlushed bool
}

func (o *outbox) init(limit int) {
	o.limit = limit
	o.peer.Store(minMaxFrame)
	o.wake = make(chan struct{}, 1)
	o.timer = time.NewTimer(time.Hour)
	o.timer.Stop()
	o.flushed = make(chan struct{})
	o.asleep = true
}

// maxOutFrame bounds our frames whatever the peer takes, so that one large message
// neither holds the locks for long nor fills the buffer alone.
const maxOutFrame = 128 << 10

func (o *outbox) setFrameMax(n uint32) { o.peer.Store(n) }

// peerFrame is the largest frame the peer takes; before its OPEN, what every peer
// takes.
func (o *outbox) peerFrame() int { return int(o.peer.Load()) }

// frameMax is how large a transfer or disposition of ours may be.
func (o *outbox) frameMax() int { return min(o.peerFrame(), maxOutFrame) }

// rouse wakes the writer. No lock may be held.
func (o *outbox) rouse() { token(o.wake) }

// arm lets the writer flush soft sessions in settleDelay. No lock may be held.
func (o *outbox) arm() { o.timer.Reset(settleDelay) }

// wakeLocked reports whether the caller has to rouse the writer, for something
// urgent it has added.
func (o *outbox) wakeLocked() bool {
	w := o.asleep
	o.asleep = false
	return w
}

// add queues a whole frame. A session's lock may be held: a tells whether the writer
// has to be woken.
func (o *outbox) add(frame []byte, a *after) {
	o.mu.Lock()
	if !o.shut {
		o.buf = append(o.buf, frame...)
	}
	a.wake = o.wakeLocked() || a.wake
	o.mu.Unlock()
}

// append queues a whole frame, or a protocol header, and wakes the writer.
func (o *outbox) append(frame []byte) {
	var a after
	o.add(frame, &a)
	if a.wake {
		o.rouse()
	}
}

// finish queues the last frame, unless there is one already, and lets nothing
// follow it; with notify, flushed is closed once that is written.
func (o *outbox) finish(frame []byte, notify bool) {
	o.mu.Lock()
	if !o.shut {
		o.buf = append(o.buf, frame...)
	}
	o.shut = true
	o.finishing = o.finishing || notify
	wake := o.wakeLocked()
	o.mu.Unlock()
	if wake {
		o.rouse()
	}
}

// mark makes the writer collect what s owes: soon if urgent, else with the next
// urgent write or after settleDelay. The session's lock is held.
func (o *outbox) mark(s *Session, urgent bool, a *after) {
	o.mu.Lock()
	switch {
	case urgent && s.mark != markUrgent:
		s.mark = markUrgent
		o.urgent = append(o.urgent, s)
		a.wake = o.wakeLocked() || a.wake
	case !urgent && s.mark == markNone:
		s.mark = markSoft
		o.soft = append(o.soft, s)
		a.arm = a.arm || len(o.soft) == 1
	}
	o.mu.Unlock()
}

// hasRoom reports whether a transfer frame of n octets may be queued: always if
// nothing is, else within the limit. The lock is held.
func (o *outbox) hasRoom(n int) bool {
	return !o.shut && (len(o.buf) == 0 || len(o.buf)+n <= o.limit)
}

// marked takes the sessions that have something to collect; only if force is set
// or anything urgent waits. It returns false, with the writer asleep, if there is
// nothing to do.
func (o *outbox) marked(force bool) (soft, urgent []*Session, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !force && len(o.buf) == 0 && len(o.urgent) == 0 {
		o.asleep = true
		return nil, nil, false
	}
	o.asleep = false
	soft, urgent = o.soft, o.urgent
	o.soft, o.urgent = o.spareS[:0], o.spareU[:0]
	for _, s := range soft {
		s.mark = markNone
	}
	for _, s := range urgent {
		s.mark = markNone
	}
	return soft, urgent, true
}

// swap takes what is queued, giving back the lists and the buffer of last time.
func (o *outbox) swap(soft, urgent []*Session) []byte {
	clear(soft)
	clear(urgent)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spareS, o.spareU = soft[:0], urgent[:0]
	b := o.buf
	o.buf, o.spare = o.spare[:0], nil
	return b
}

// done reports, once, that flushed is to be closed.
func (o *outbox) done() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.finishing || o.closedFlushed || len(o.buf) > 0 {
		return false
	}
	o.closedFlushed = true
	return true
}

func (o *outbox) giveBack(b []byte) {
	o.mu.Lock()
	o.spare = b
	o.mu.Unlock()
}
