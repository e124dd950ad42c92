package amqpflow

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow/internal/address"
)

const (
	maxLinks = 200             // sending links that are kept
	linkIdle = 5 * time.Minute // after which one is closed
)

// linkCache keeps the sending links of a Publisher, and the session they
// share: at most maxLinks, the least recently used going first, and none that
// was idle for linkIdle.
type linkCache struct {
	p *Publisher

	mu     sync.Mutex
	links  map[Address]*sending
	sess   *session    // instead of the connection's, once that was lost
	of     *connection // whose sess is
	timer  *time.Timer // closes idle links; nil without any
	closed bool

	renewing chan struct{} // capacity 1: held while a lost session is replaced

	wanted atomic.Bool   // somebody waits for freed
	freed  chan struct{} // closed and replaced when a link may be idle and wanted is set
}

func (lc *linkCache) init(p *Publisher) {
	lc.p = p
	lc.links = make(map[Address]*sending)
	lc.renewing, lc.freed = make(chan struct{}, 1), make(chan struct{})
}

// get returns what is sent to the address, which put gives back. The error is
// that of an address which cannot be published to.
func (lc *linkCache) get(addr Address) (*sending, error) {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	s := lc.links[addr]
	if s == nil {
		node, err := addr.parse()
		if err != nil {
			return nil, err
		}
		s = &sending{p: lc.p, addr: addr, node: node, turn: make(chan struct{}, 1)}
		if len(lc.links) >= maxLinks && !lc.closed {
			s.room = lc.discardLocked(lc.evictLocked(nil))
		}
		lc.links[addr] = s
		if lc.timer == nil && !lc.closed {
			lc.timer = time.AfterFunc(linkIdle, lc.closeIdle)
		}
	}
	s.users++
	return s, nil
}

// attach makes l the link of its address and begins to attach it.
func (lc *linkCache) attach(l *sendingLink, node address.Node) error {
	if !lc.begin(l, node) {
		return lc.p.c.notConnected()
	}
	return nil
}

// begin is attach, and returns false where it is over with all links.
func (lc *linkCache) begin(l *sendingLink, node address.Node) bool {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.closed {
		return false
	}
	l.s.link.Store(l)
	lc.p.c.calls.Go(func() { l.attach(node) })
	return true
}

func (lc *linkCache) put(s *sending) {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	s.users--
	s.used = time.Now()
	lc.tellLocked()
}

// tell wakes who waits for a link that may be closed.
func (lc *linkCache) tell() {
	if lc.wanted.Load() {
		lc.mu.Lock()
		defer lc.mu.Unlock()
		lc.tellLocked()
	}
}

func (lc *linkCache) tellLocked() {
	if lc.wanted.CompareAndSwap(true, false) {
		close(lc.freed)
		lc.freed = make(chan struct{})
	}
}

// makeRoom closes the least recently used link, once one is idle, for a link
// that the peer's limit leaves no room for. It returns false where waiting is
// of no use: there is no other, or it is over with all of them.
func (lc *linkCache) makeRoom(l *sendingLink) bool {
	for {
		lc.mu.Lock()
		lc.wanted.Store(true) // before the look: what becomes idle after it tells
		freed, hopeless := lc.freed, lc.closed || !lc.othersLocked(l)
		var oldest *sendingLink
		if !hopeless {
			oldest = lc.evictLocked(l)
		}
		lc.mu.Unlock()
		switch {
		case oldest != nil:
			_ = oldest.close(context.Background())
			return true
		case hopeless:
			return false
		}
		select {
		case <-freed:
		case <-l.conn.plane.Done():
			return false
		}
	}
}

// othersLocked reports whether there is a link besides l.
func (lc *linkCache) othersLocked(l *sendingLink) bool {
	for _, s := range lc.links {
		if other := s.link.Load(); other != l && other.live() {
			return true
		}
	}
	return false
}

// idleLocked reports whether nobody uses the address and its link, if any, has
// nothing under way: a Publish that was given up has the turn.
func (s *sending) idleLocked() bool {
	if s.users > 0 || len(s.turn) > 0 {
		return false
	}
	l := s.link.Load()
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight == 0 && isClosed(l.answered)
}

// evictLocked takes the least recently used address out that has nothing under
// way, and returns its link; where that is to make room for wanting, only one
// with a link. It returns nil where there is none.
func (lc *linkCache) evictLocked(wanting *sendingLink) *sendingLink {
	var oldest *sending
	for _, s := range lc.links {
		if !s.idleLocked() || wanting != nil && (s == wanting.s || !s.link.Load().live()) {
			continue
		}
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	if oldest == nil {
		return nil
	}
	delete(lc.links, oldest.addr)
	return oldest.link.Load()
}

// discardLocked closes a link, if any, that was taken out, and returns what is
// closed when it has gone. It is not to be called once the cache is closed:
// Shutdown may wait for the broker's calls then.
//
// Its goroutine ends when the peer has answered, or the connection is lost, and
// is waited for by the broker's calls.
func (lc *linkCache) discardLocked(l *sendingLink) <-chan struct{} {
	if l == nil {
		return nil
	}
	gone := make(chan struct{})
	lc.p.c.calls.Go(func() {
		defer close(gone)
		_ = l.close(context.Background())
	})
	return gone
}

// closeIdle closes the links that were idle for long. It runs in the timer's
// goroutine and does not wait.
func (lc *linkCache) closeIdle() {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.closed {
		return
	}
	next := linkIdle
	for addr, s := range lc.links {
		idle := time.Since(s.used)
		switch {
		case !s.idleLocked():
		case idle >= linkIdle:
			delete(lc.links, addr)
			lc.discardLocked(s.link.Load())
		default:
			next = min(next, linkIdle-idle)
		}
	}
	if len(lc.links) == 0 {
		lc.timer = nil
		return
	}
	lc.timer.Reset(next)
}

// empty takes all links out, for good.
func (lc *linkCache) empty() []*sendingLink {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	lc.closed = true
	lc.tellLocked()
	if lc.timer != nil {
		lc.timer.Stop()
	}
	all := make([]*sendingLink, 0, len(lc.links))
	for _, s := range lc.links {
		all = append(all, s.link.Load())
	}
	clear(lc.links)
	return all
}

// session returns the session of the sending links, a new one if the last was
// lost: one for all who ask meanwhile.
func (lc *linkCache) session(conn *connection) (*session, error) {
	if sess := lc.current(conn); !isClosed(sess.plane.Done()) {
		return sess, nil
	}
	lc.renewing <- struct{}{}
	defer func() { <-lc.renewing }()
	lost := lc.current(conn)
	if !isClosed(lost.plane.Done()) { // another attach was faster
		return lost, nil
	}
	lc.p.c.log.Warn("session lost", logError, lost.plane.Err())
	conn.sessions.retire(lost)
	fresh, err := conn.newSession()
	if err != nil {
		return nil, err
	}
	lc.mu.Lock()
	lc.sess, lc.of = fresh, conn
	lc.mu.Unlock()
	conn.discard(lost)
	return fresh, nil
}

func (lc *linkCache) current(conn *connection) *session {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.sess != nil && lc.of == conn {
		return lc.sess
	}
	return conn.pub
}

// endSession ends the session of the sending links.
func (lc *linkCache) endSession(ctx context.Context, conn *connection) error {
	return conn.leave(ctx, lc.current(conn))
}

// probe attaches an address on a session of its own first, where the peer may
// end the session of an attach that it refuses: the links of other addresses
// are not to suffer from that. What attached before may be refused today, so
// each attach is probed.
func (lc *linkCache) probe(conn *connection, node address.Node) error {
	if !conn.risky {
		return nil
	}
	alone, err := conn.newSession()
	if err != nil { // none is left, and the attach itself will tell
		return nil
	}
	defer conn.discard(alone)
	_, _, err = conn.attachSender(alone, rand.Text(), node)
	return err
}
