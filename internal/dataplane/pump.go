package dataplane

// blocked is what a message waits for.
type blocked uint8

const (
	blockedNot    blocked = iota // it is all queued
	blockedCredit                // the peer's credit on the link
	blockedWindow                // the peer's window in the session
	blockedRoom                  // room in the write buffer
)

// transmitLocked queues as many frames of r, the next of the link, as credit, window
// and room allow. The delivery-id is taken in the moment in which the first frame is
// queued, so ids are on the wire in order.
func (l *Link) transmitLocked(r *Receipt, a *after) blocked {
	s := l.s
	o := &s.c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	chunk := o.frameMax() - transferHead
	for {
		first := !l.started
		n := min(len(r.payload)-r.off, chunk)
		switch {
		case first && l.sendCreditLocked() == 0:
			return blockedCredit
		case ahead(s.windowEnd, s.nextOutgoing) == 0:
			return blockedWindow
		case !o.hasRoom(n + transferHead):
			return blockedRoom
		}
		more := r.off+n < len(r.payload)
		if first {
			s.appendSettledLocked(o)
			l.beginLocked(r)
		}
		l.appendTransfer(o, r, n, first, more)
		s.nextOutgoing++
		r.off += n
		l.started = more
		a.wake = o.wakeLocked() || a.wake
		if !more {
			r.payload, r.whole = nil, true
			if r.o.Settled || r.early {
				a.done = append(a.done, r)
			}
			return blockedNot
		}
	}
}

// beginLocked gives r its delivery-id and uses up one credit.
func (l *Link) beginLocked(r *Receipt) {
	s := l.s
	r.id, r.begun = s.nextDelivery, true
	s.nextDelivery++
	l.sent++
	if !r.o.Settled {
		s.out.put(r.id, r)
	}
}

// pumpLocked goes on with the messages that wait, link by link in turn, as far as
// the peer and the buffer allow. Called by the writer.
func (s *Session) pumpLocked(a *after) {
	s.pump = false
	turns := len(s.waiting)
	for turns > 0 {
		l := s.waiting[0]
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
		if len(l.line) == 0 {
			l.queued = false
			turns--
			continue
		}
		r := l.line[0]
		why := l.transmitLocked(r, a)
		if why == blockedNot {
			l.line[0] = nil
			l.line = l.line[1:]
			a.close = append(a.close, r.sent)
			l.settleDrainLocked()
			turns = len(s.waiting) + 1
		} else {
			turns--
		}
		s.waiting = append(s.waiting, l)
		switch why {
		case blockedWindow:
			turns = 0 // for all links, but their credit may be owed back
		case blockedRoom:
			s.pump = true
			s.c.out.mark(s, true, a)
			return
		}
	}
	if len(s.owing) > 0 {
		s.c.out.mark(s, true, a)
	}
}
