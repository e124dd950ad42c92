package dataplane

import "github.com/amqpflow/amqpflow/internal/wire"

// begin works off the peer's BEGIN, which must answer one of ours.
//
// Spec: 2.5.1, 2.7.2.
func (r *reader) begin(channel uint16, body []byte) error {
	var b wire.Begin
	if err := b.Decode(body); err != nil {
		return err
	}
	if !b.RemoteChannel.Set || r.byPeer[channel] != nil {
		return violation("begin on channel %d that answers none of ours", channel)
	}
	c := r.c
	c.mu.Lock()
	s := c.sessions[uint16(b.RemoteChannel.Value)]
	c.mu.Unlock()
	if s == nil || !s.mapTo(channel, &b) {
		return violation("begin for channel %d, which waits for none", b.RemoteChannel.Value)
	}
	r.byPeer[channel] = s
	return c.feed(reencodeBegin(channel, &b))
}

// mapTo makes the session mapped. It returns false if no BEGIN was due.
func (s *Session) mapTo(channel uint16, b *wire.Begin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != sessionBeginSent {
		return false
	}
	s.state = sessionMapped
	s.peerChannel = channel
	s.nextIncoming = b.NextOutgoingID
	s.windowEnd = s.firstOutgoing + min(b.IncomingWindow, maxStep)
	s.handleMax = b.HandleMax
	return true
}

// end works off the peer's END.
//
// Spec: 2.5.2, 2.7.8.
func (r *reader) end(channel uint16, body []byte) error {
	s, err := r.session(channel, "end")
	if err != nil {
		return err
	}
	var e wire.End
	if err := e.Decode(body); err != nil {
		return err
	}
	delete(r.byPeer, channel)
	var a after
	s.mu.Lock()
	over := s.state == sessionEndSent
	if over {
		s.state = sessionGone
	} else {
		s.state = sessionEndReceived
		s.loseLocked(&PeerError{Performative: "end", Closed: true, Err: e.Error}, &a)
	}
	s.mu.Unlock()
	r.after(&a)
	r.c.endSeen(s, over)
	return r.c.feed(reencodeEnd(channel, &e))
}

// endSeen frees what s held of the limits, and its channel if it is over. go-amqp
// gives a channel to another session as soon as it reads the peer's END.
func (c *Conn) endSeen(s *Session, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.channels--
	if over {
		c.forgetLocked(s)
	}
}

func (c *Conn) forgetLocked(s *Session) {
	delete(c.all, s)
	if c.sessions[s.channel] == s {
		delete(c.sessions, s.channel)
	}
}

// attach works off the peer's ATTACH, which must answer one of ours.
//
// Spec: 2.6.3, 2.7.3.
func (r *reader) attach(channel uint16, body []byte) error {
	s, err := r.session(channel, "attach")
	if err != nil {
		return err
	}
	var a wire.Attach
	if err := a.Decode(body); err != nil {
		return err
	}
	if !s.attachIn(&a) {
		return violation("attach of %s %q with handle %d answers none of ours", a.Role, clip(a.Name), a.Handle)
	}
	return r.c.feed(reencodeAttach(channel, &a))
}

func clip(s string) string { return s[:min(len(s), 64)] }

// attachIn opens the link that a answers. It returns false if there is none.
func (s *Session) attachIn(a *wire.Attach) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := linkKey{a.Name, !a.Role}
	l := s.names[key]
	if l == nil || s.peers[a.Handle] != nil || a.Handle == phantomHandle {
		return false
	}
	delete(s.names, key)
	s.peers[a.Handle] = l
	l.peerHandle = a.Handle
	l.attached = Attach{
		InitialDeliveryCount: a.InitialDeliveryCount.Value,
		MaxMessageSize:       a.MaxMessageSize,
		SndSettleMode:        a.SndSettleMode,
		RcvSettleMode:        a.RcvSettleMode,
		Source:               a.Source,
		Target:               a.Target,
		Properties:           goMap(a.Properties),
		Offered:              goStrings(a.OfferedCapabilities),
	}
	l.state = linkOpen
	if l.role == wire.RoleReceiver {
		l.refused = a.Source == nil
		l.count = a.InitialDeliveryCount.Value
		l.seen = l.count
		l.limit.Store(l.count)
	} else {
		l.refused = a.Target == nil && a.Coordinator == nil
		l.creditEnd = l.sent
		l.maxMessage = a.MaxMessageSize
	}
	if l.refused {
		l.state = linkRefused
	}
	return true
}

// detach works off the peer's DETACH.
//
// Spec: 2.6.4, 2.6.5, 2.6.6, 2.7.7.
func (r *reader) detach(channel uint16, body []byte) error {
	s, err := r.session(channel, "detach")
	if err != nil {
		return err
	}
	var d wire.Detach
	if err := d.Decode(body); err != nil {
		return err
	}
	var a after
	s.mu.Lock()
	l := s.peers[d.Handle]
	if l != nil {
		s.detachIn(l, &d, &a)
	}
	s.mu.Unlock()
	if l == nil {
		return violation("detach of handle %d, which is not attached", d.Handle)
	}
	l.assembly = assembly{}
	r.after(&a)
	return r.c.feed(reencodeDetach(channel, &d))
}

func (s *Session) detachIn(l *Link, d *wire.Detach, a *after) {
	delete(s.peers, d.Handle)
	s.uncountLocked(l)
	l.peerClosed = d.Closed
	if l.state == linkDetachSent {
		l.state = linkGone
		delete(s.ours, l.handle)
		if d.Error != nil { // no answer: it was on its way when ours left, and what we settled last came too late
			l.err = detached(d)
		}
		return
	}
	l.state = linkDetachReceived
	l.loseLocked(detached(d), a)
}

// detached is the loss of a link by the peer's DETACH.
func detached(d *wire.Detach) error {
	return &PeerError{Performative: "detach", Closed: d.Closed, Err: d.Error}
}
