package dataplane

import (
	"sync/atomic"

	"github.com/amqpflow/amqpflow/internal/wire"
)

type linkState uint8

const (
	linkExpected       linkState = iota // no ATTACH yet
	linkAttachSent                      // our ATTACH is out (or parked), the peer's is missing
	linkOpen                            // both
	linkRefused                         // both, but the peer's has no terminus: its DETACH follows
	linkDetachReceived                  // the peer's DETACH is in, go-amqp owes ours
	linkDetachSent                      // ours is out, the peer's is missing
	linkGone
)

// Attach is what the peer's ATTACH says.
type Attach struct {
	InitialDeliveryCount uint32
	MaxMessageSize       uint64 // octets; 0 means no limit
	SndSettleMode        uint8
	RcvSettleMode        uint8
	Source               *wire.Source // nil if the peer has none
	Target               *wire.Target // nil if the peer has none
	Properties           map[string]any
	Offered              []string
}

// detachHint is what our DETACH is to say beyond what go-amqp writes.
type detachHint struct {
	err        *wire.Error
	nonClosing bool
}

// parkedAttach is an ATTACH whose handle still owes a DETACH.
type parkedAttach struct {
	l     *Link
	frame []byte
}

// Link is one link of a session, from Expect to both DETACHes. All methods may be
// called from any goroutine; those for receiving belong to links of role receiver,
// Send to links of role sender.
type Link struct {
	s    *Session
	role wire.Role
	opts LinkOptions
	key  linkKey
	done chan struct{} // closed when err is set

	// The reader's own.
	assembly assembly
	tokenDue bool // it is going to signal
	refused  bool

	gone atomic.Bool // err is set: the reader may drop payloads

	// The session's lock guards the rest.
	state      linkState
	err        error
	handle     uint32
	peerHandle uint32
	peerClosed bool // the peer's DETACH was a closing one
	phantom    bool // our ATTACH was never sent, so our DETACH must not be either
	uncounted  bool // does not count towards handle-max any more
	attached   Attach
	hint       detachHint
	parked     *parkedAttach // waits for our handle
	oweFlow    bool

	receiving
	sending
}

func newLink(s *Session, role wire.Role, name string, o LinkOptions) *Link {
	l := &Link{
		s:    s,
		role: role,
		opts: o,
		key:  linkKey{name, role},
		done: make(chan struct{}),
		hint: detachHint{nonClosing: o.NonClosing},
	}
	l.window = o.Window
	l.ready, l.noticed = make(chan struct{}, 1), make(chan struct{}, 1)
	return l
}

// Done is closed when the link can be used no more: at either DETACH, at its
// session's or connection's end, at a breach of its credit, at Forget.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns why, nil before Done is closed: a *PeerError, ErrTransferLimit,
// ErrClosed after our own DETACH, or the error of the session or connection. A
// DETACH of the peer that crosses ours and bears an error makes ErrClosed a
// *PeerError: what was settled last has come too late for it.
func (l *Link) Err() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.err
}

// Attached returns what the peer's ATTACH said, the zero Attach before it has come.
func (l *Link) Attached() Attach {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.attached
}

// SetDetach decides what our DETACH will say: err as its error, and whether it
// leaves the link's terminus in being. It is to be called before go-amqp's Close. A
// DETACH that answers the peer's copies the peer's closed flag instead.
//
// Spec: 2.6.4, 2.6.5, 2.6.6.
func (l *Link) SetDetach(err *wire.Error, nonClosing bool) {
	l.s.mu.Lock()
	l.hint = detachHint{err, nonClosing}
	l.s.mu.Unlock()
}

// Forget withdraws the expectation of an ATTACH that was not written. After the
// ATTACH it does nothing.
func (l *Link) Forget() {
	var a after
	s := l.s
	s.mu.Lock()
	for i, e := range s.expected {
		if e == l {
			s.expected = append(s.expected[:i], s.expected[i+1:]...)
			s.uncountLocked(l)
			l.state = linkGone
			l.loseLocked(ErrClosed, &a)
			break
		}
	}
	s.mu.Unlock()
	a.run(s.c)
}

// uncountLocked takes l out of the count towards handle-max, once. go-amqp frees
// the handle when it reads the peer's DETACH; that DETACH is counted here.
func (s *Session) uncountLocked(l *Link) {
	if !l.uncounted {
		l.uncounted = true
		s.handles--
	}
}

// loseLocked ends the link with err for its users. What go-amqp still has to say
// about it is another matter: see state.
func (l *Link) loseLocked(err error, a *after) {
	if l.err != nil {
		return
	}
	l.err = err
	l.gone.Store(true)
	delete(l.s.links, l)
	close(l.done) // under the lock: who sees err sees it closed
	if l.role == wire.RoleReceiver {
		l.endReceivingLocked(a)
	} else {
		l.endSendingLocked(a)
	}
}

// lostLocked returns ErrLinkLost with its cause unless the link is open.
func (l *Link) lostLocked() error {
	if l.err != nil {
		return both(ErrLinkLost, l.err)
	}
	if l.state != linkOpen {
		return both(ErrLinkLost, errNotAttached)
	}
	return nil
}
