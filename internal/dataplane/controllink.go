package dataplane

import (
	"fmt"
	"math"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// phantomHandle is the peer's handle in an ATTACH that the peer never sent. It is
// above the handle-max that go-amqp announces, so no peer may use it.
const phantomHandle = math.MaxUint32

// attachOut binds an ATTACH to the link expected with its name and role. It is
// parked while its handle still owes the peer a DETACH. One that is over the peer's
// frame size is answered here.
//
// Spec: 2.6.3.
func (c *Conn) attachOut(channel uint16, p []byte) error {
	var at wire.Attach
	if err := at.Decode(p[wire.FrameHeaderSize:]); err != nil {
		return misuse("%w", err)
	}
	if at.Role == wire.RoleSender && c.orig.count != 0 {
		at.InitialDeliveryCount = wire.Some(c.orig.count)
		p = encodeAMQP(channel, at.Append)
	}
	s := c.sessionOut(channel)
	if s == nil {
		return misuse("attach on channel %d, where no session is", channel)
	}
	var a after
	s.mu.Lock()
	if !s.usable() {
		s.mu.Unlock()
		return nil // the session is ending, which go-amqp has not read yet
	}
	l := s.bindLocked(linkKey{at.Name, at.Role})
	if l == nil {
		s.mu.Unlock()
		return misuse("attach of %s %q, which nobody expects", at.Role, at.Name)
	}
	l.state = linkAttachSent
	l.handle = at.Handle
	l.first, l.sent = at.InitialDeliveryCount.Value, at.InitialDeliveryCount.Value
	old := s.ours[at.Handle]
	if old != nil {
		ok := old.state == linkDetachReceived && old.parked == nil
		old.parked = &parkedAttach{l, append([]byte(nil), p...)}
		s.mu.Unlock()
		if !ok {
			return misuse("attach with handle %d, which is in use", at.Handle)
		}
		return nil
	}
	fed := s.sendAttachLocked(l, p, &a)
	s.mu.Unlock()
	a.run(c)
	return c.feedAll(fed)
}

// bindLocked takes the link expected with key.
func (s *Session) bindLocked(key linkKey) *Link {
	for i, l := range s.expected {
		if l.key == key {
			s.expected = append(s.expected[:i], s.expected[i+1:]...)
			return l
		}
	}
	return nil
}

// sendAttachLocked queues an ATTACH. If the peer does not take a frame of that size
// it returns instead what go-amqp is to read: a refusal.
func (s *Session) sendAttachLocked(l *Link, p []byte, a *after) (fed [][]byte) {
	s.ours[l.handle] = l
	if len(p) <= s.c.out.peerFrame() {
		s.names[l.key] = l
		s.c.out.add(p, a)
		return nil
	}
	why := &wire.Error{
		Condition:   "amqp:frame-size-too-small",
		Description: fmt.Sprintf("attach of %d octets, the peer takes %d", len(p), s.c.out.peerFrame()),
	}
	l.phantom = true
	l.state = linkDetachReceived
	s.uncountLocked(l)
	l.loseLocked(why, a)
	attach := wire.Attach{Name: l.key.name, Handle: phantomHandle, Role: !l.role, SndSettleMode: wire.SndMixed}
	detach := wire.Detach{Handle: phantomHandle, Closed: true, Error: why}
	return [][]byte{reencodeAttach(s.peerChannel, &attach), reencodeDetach(s.peerChannel, &detach)}
}

func (c *Conn) feedAll(frames [][]byte) error {
	for _, f := range frames {
		if err := c.feed(f); err != nil {
			return err
		}
	}
	return nil
}

// detachOut detaches a link, behind everything that was settled on its session. It
// says what SetDetach and NonClosing ask for, and an answer copies the peer's
// closed flag.
//
// Spec: 2.6.4, 2.6.5, 2.6.6.
func (c *Conn) detachOut(channel uint16, p []byte) error {
	var d wire.Detach
	if err := d.Decode(p[wire.FrameHeaderSize:]); err != nil {
		return misuse("%w", err)
	}
	s := c.sessionOut(channel)
	if s == nil {
		return nil // the session is gone, which the link has not noticed yet
	}
	var a after
	s.mu.Lock()
	if !s.usable() {
		s.mu.Unlock()
		return nil
	}
	l := s.ours[d.Handle]
	if l == nil || l.state == linkAttachSent || l.state == linkDetachSent {
		s.mu.Unlock()
		return misuse("detach of handle %d, which is not attached", d.Handle)
	}
	fed := s.sendDetachLocked(l, &d, &a)
	s.mu.Unlock()
	a.run(c)
	return c.feedAll(fed)
}

// sendDetachLocked queues our DETACH of l, and then an ATTACH that waits for the
// handle.
func (s *Session) sendDetachLocked(l *Link, d *wire.Detach, a *after) (fed [][]byte) {
	s.flushLocked(a)
	own := d.Error
	if l.state == linkDetachReceived {
		d.Closed = l.peerClosed
	} else {
		d.Closed = !l.hint.nonClosing
		if l.hint.err != nil {
			d.Error = l.hint.err
		}
	}
	if !l.phantom {
		s.c.out.add(s.fittingDetach(d), a)
	}
	l.loseLocked(ours(own), a)
	if l.state != linkDetachReceived {
		l.state = linkDetachSent
		return nil
	}
	l.state = linkGone
	delete(s.ours, l.handle)
	if next := l.parked; next != nil {
		l.parked = nil
		return s.sendAttachLocked(next.l, next.frame, a)
	}
	return nil
}

// fittingDetach encodes d, shortening its error to the peer's frame size.
func (s *Session) fittingDetach(d *wire.Detach) []byte {
	b := encodeAMQP(s.channel, d.Append)
	if limit := s.c.out.peerFrame(); len(b) > limit {
		short := *d
		short.Error = fittingError(d.Error, limit-dispositionHead)
		b = encodeAMQP(s.channel, short.Append)
	}
	return b
}
