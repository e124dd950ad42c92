package dataplane

import "github.com/amqpflow/amqpflow/internal/wire"

// flowIn works off the peer's FLOW.
//
// Spec: 2.5.6, 2.6.7, 2.7.4.
func (r *reader) flowIn(channel uint16, body []byte) error {
	s, err := r.session(channel, "flow")
	if err != nil {
		return err
	}
	f := &r.flow
	if err := f.Decode(body); err != nil {
		return err
	}
	a := &r.later
	s.mu.Lock()
	known := s.flowLocked(f, a)
	s.mu.Unlock()
	r.after(a)
	if !known {
		return violation("flow on handle %d, which is not attached", f.Handle.Value)
	}
	return nil
}

// flowLocked takes over what the peer says about the session's window and a link's
// credit. It returns false if it names a link that is not there.
func (s *Session) flowLocked(f *wire.Flow, a *after) bool {
	var l *Link
	if f.Handle.Set {
		if l = s.peers[f.Handle.Value]; l == nil {
			return false
		}
	}
	if !s.usable() {
		return true
	}
	next := s.firstOutgoing
	if f.NextIncomingID.Set {
		next = f.NextIncomingID.Value
	}
	s.windowEnd = next + min(f.IncomingWindow, maxStep)
	open := l != nil && l.lostLocked() == nil
	if open && l.role == wire.RoleSender {
		l.flowToSenderLocked(f)
	} else if open {
		l.flowToReceiverLocked(f, a)
	}
	switch {
	case f.Echo && open:
		l.oweLocked()
	case f.Echo:
		s.oweFlow = true
	}
	s.pump = len(s.waiting) > 0
	if s.pump || s.oweFlow || len(s.owing) > 0 {
		s.c.out.mark(s, true, a)
	}
	return true
}

// flowToSenderLocked takes over the credit that the peer, the receiver, grants. A
// flow without link-credit is about the session alone.
func (l *Link) flowToSenderLocked(f *wire.Flow) {
	if !f.LinkCredit.Set {
		return
	}
	count := l.first
	if f.DeliveryCount.Set {
		count = f.DeliveryCount.Value
	}
	l.creditEnd = count + min(f.LinkCredit.Value, maxStep)
	l.peerDrain = f.Drain
	l.drainDue = f.Drain
	l.settleDrainLocked()
}

// settleDrainLocked gives up the credit the peer wants back, once nobody who waits
// can use it.
func (l *Link) settleDrainLocked() {
	if !l.drainDue || len(l.line) > 0 && l.sendCreditLocked() > 0 {
		return
	}
	l.drainDue = false
	if ahead(l.creditEnd, l.sent) > 0 {
		l.sent = l.creditEnd
	}
	l.oweLocked()
}

// flowToReceiverLocked takes over the delivery-count of the peer, the sender: a
// drain is answered by moving it to the end of the credit.
func (l *Link) flowToReceiverLocked(f *wire.Flow, a *after) {
	none := f.LinkCredit.Set && f.LinkCredit.Value == 0
	late := none && l.stale.Set && f.DeliveryCount == l.stale
	if late {
		l.stale = wire.OptUint32{}
	}
	// Until the peer has seen the drain it may say that it has no credit left of what
	// was granted before: only an answer says drain, or has come to the credit's end.
	answer := f.Drain || f.DeliveryCount == wire.Some(l.limit.Load())
	drained := none && answer && l.draining && !late
	middle := l.assembly.active
	if f.DeliveryCount.Set && (!middle || drained) {
		// Within the credit only: whatever else a peer says here is not true.
		if to := f.DeliveryCount.Value; to-l.count <= l.limit.Load()-l.count {
			l.count, l.seen = to, to
			l.assembly.counted = middle
		}
	}
	if drained {
		l.limit.Store(l.count)
	}
	l.drainedLocked(drained, a)
	a.notify = append(a.notify, l)
}

// oweLocked makes the writer queue one flow for the link.
func (l *Link) oweLocked() {
	if !l.oweFlow {
		l.oweFlow = true
		l.s.owing = append(l.s.owing, l)
	}
}

// appendOwedLocked queues the flows that the peer asked for. Both locks are held.
func (s *Session) appendOwedLocked(o *outbox) {
	for i, l := range s.owing {
		s.owing[i] = nil
		l.oweFlow = false
		if l.lostLocked() == nil {
			l.queueFlow(o)
		}
	}
	s.owing = s.owing[:0]
	if s.oweFlow {
		s.oweFlow = false
		f := s.flow()
		s.queueFlow(o, &f)
	}
}

// appendFlowLocked queues the link's flow now, behind what was settled.
func (l *Link) appendFlowLocked(a *after) {
	o := &l.s.c.out
	o.mu.Lock()
	l.s.appendSettledLocked(o)
	l.queueFlow(o)
	a.wake = o.wakeLocked() || a.wake
	o.mu.Unlock()
}

// queueFlow appends the link's state as it is. Both locks are held.
func (l *Link) queueFlow(o *outbox) {
	f := l.s.flow()
	f.Handle = wire.Some(l.handle)
	if l.role == wire.RoleReceiver {
		f.DeliveryCount = wire.Some(l.count)
		f.LinkCredit = wire.Some(uint32(l.creditLocked()))
		f.Drain = l.draining
	} else {
		f.DeliveryCount = wire.Some(l.sent)
		f.LinkCredit = wire.Some(l.sendCreditLocked())
		f.Available = wire.Some(uint32(len(l.line)))
		f.Drain = l.peerDrain
	}
	l.s.queueFlow(o, &f)
}

// flow is what every flow of the session says. The windows are as wide as serial
// numbers allow: link credit is what bounds us.
func (s *Session) flow() wire.Flow {
	return wire.Flow{
		NextIncomingID: wire.Some(s.nextIncoming),
		IncomingWindow: maxStep,
		NextOutgoingID: s.nextOutgoing,
		OutgoingWindow: maxStep,
	}
}

func (s *Session) queueFlow(o *outbox, f *wire.Flow) {
	if o.shut {
		return
	}
	start := len(o.buf)
	o.buf = f.Append(wire.BeginFrame(o.buf, wire.TypeAMQP, s.channel))
	wire.EndFrame(o.buf, start)
}
