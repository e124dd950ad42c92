package dataplane

import (
	"fmt"
	"sync"

	"github.com/amqpflow/amqpflow/internal/wire"
)

type sessionState uint8

const (
	sessionExpected    sessionState = iota // no BEGIN yet
	sessionBeginSent                       // our BEGIN is out (or parked), the peer's is missing
	sessionMapped                          // both
	sessionEndSent                         // ours is out, the peer's END is missing
	sessionEndReceived                     // the peer's is in, go-amqp owes ours
	sessionGone
)

// inSlot is one incoming delivery that was not settled yet.
type inSlot struct {
	link    *Link
	settled bool // it was sent settled: nothing is written for it
	back    bool // the peer took it back and its link was told
}

type linkKey struct {
	name string
	role wire.Role
}

// Session is one session of a connection, from ExpectSession to both ENDs. All
// methods may be called from any goroutine.
type Session struct {
	c    *Conn
	done chan struct{} // closed when err is set
	mark mark          // the outbox's lock guards it

	mu          sync.Mutex
	state       sessionState
	err         error
	channel     uint16 // ours
	peerChannel uint16
	parked      *parkedBegin // waits for our channel

	nextIncoming  uint32 // transfer-id of the next frame from the peer
	nextOutgoing  uint32 // transfer-id of our next frame
	firstOutgoing uint32 // what our BEGIN said
	nextDelivery  uint32 // delivery-id of our next delivery
	windowEnd     uint32 // the first transfer-id the peer does not take yet

	handleMax uint32
	handles   int // links that count towards handle-max
	expected  []*Link
	names     map[linkKey]*Link  // ATTACH written, the peer's missing
	ours      map[uint32]*Link   // by our handle, from ATTACH to both DETACHes
	peers     map[uint32]*Link   // by the peer's; only the reader writes it
	links     map[*Link]struct{} // every link not lost

	in      ring[inSlot]
	out     ring[*Receipt]
	settled settlements // dispositions to write, role receiver
	confirm runs        // dispositions to write, role sender: second mode

	owing   []*Link // links with oweFlow
	oweFlow bool    // a flow of the session alone
	waiting []*Link // links with sends in line, in the order they began to wait
	pump    bool    // what they wait for may have come
}

// parkedBegin is a BEGIN whose channel still owes an END.
type parkedBegin struct {
	s     *Session
	frame []byte
}

func newSession(c *Conn) *Session {
	return &Session{
		c:            c,
		done:         make(chan struct{}),
		nextDelivery: c.orig.delivery,
		names:        make(map[linkKey]*Link),
		ours:         make(map[uint32]*Link),
		peers:        make(map[uint32]*Link),
		links:        make(map[*Link]struct{}),
	}
}

// Done is closed when the session can be used no more: at either END, at the
// connection's CLOSE or loss, at Forget.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why, nil before Done is closed: a *PeerError, ErrClosed after our own
// END, or the connection's error.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Forget withdraws the expectation of a BEGIN that was not written. After the BEGIN
// it does nothing.
func (s *Session) Forget() {
	c := s.c
	c.mu.Lock()
	found := false
	for i, e := range c.expected {
		if e == s {
			c.expected = append(c.expected[:i], c.expected[i+1:]...)
			c.channels--
			delete(c.all, s)
			found = true
			break
		}
	}
	c.mu.Unlock()
	if found {
		s.lose(ErrClosed)
	}
}

// Expect makes the link of the next ATTACH that go-amqp writes with our role and
// name. It returns ErrLimit past the peer's handle-max, and the session's error if
// it has one.
//
// Spec: 2.7.2 (handle-max).
func (s *Session) Expect(role wire.Role, name string, o LinkOptions) (*Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.state != sessionMapped:
		return nil, fmt.Errorf("session has not begun: %w", ErrNotSent)
	case uint64(s.handles) > uint64(s.handleMax):
		return nil, ErrLimit
	}
	l := newLink(s, role, name, o)
	s.handles++
	s.expected = append(s.expected, l)
	s.links[l] = struct{}{}
	return l, nil
}

// lose ends everything on the session with err. What was settled before is still
// queued.
func (s *Session) lose(err error) {
	var a after
	s.mu.Lock()
	s.loseLocked(err, &a)
	s.mu.Unlock()
	a.run(s.c)
}

func (s *Session) loseLocked(err error, a *after) {
	if s.err != nil {
		return
	}
	s.flushLocked(a)
	s.err = err
	close(s.done) // under the lock: who sees err sees it closed
	for l := range s.links {
		l.loseLocked(err, a)
	}
	s.parked = nil
}

// usable reports whether frames of ours may still be queued.
func (s *Session) usable() bool { return s.state == sessionMapped && s.err == nil }

// flushLocked queues what was settled, so that it stands before whatever comes
// next. Unless the session is mapped nobody would read it: it is dropped.
func (s *Session) flushLocked(a *after) {
	if s.state != sessionMapped {
		s.settled.reset()
	}
	if s.settled.n == 0 {
		return
	}
	o := &s.c.out
	o.mu.Lock()
	s.appendSettledLocked(o)
	a.wake = o.wakeLocked() || a.wake
	o.mu.Unlock()
}

// collect queues everything the session owes. Called by the writer.
func (s *Session) collect() {
	var a after
	s.mu.Lock()
	if s.usable() {
		o := &s.c.out
		o.mu.Lock()
		s.appendSettledLocked(o)
		s.appendConfirmLocked(o)
		s.appendOwedLocked(o)
		o.mu.Unlock()
		if s.pump {
			s.pumpLocked(&a)
		}
	}
	s.mu.Unlock()
	a.wake = false // the writer is awake: it is the caller
	a.run(s.c)
}

// LinkOptions of a link.
type LinkOptions struct {
	// MaxMessage is the largest payload of a delivery that is kept, in octets. The
	// rest of a larger one is dropped as it comes. 0 or less means no limit.
	MaxMessage int64
	// NonClosing makes our DETACH leave the link's terminus in being.
	NonClosing bool
	// Window is the window that Grant will be called with, as a hint.
	Window int
	// Returned is what a delivery is settled with that the peer took back.
	// Default: released.
	Returned *wire.State
}
