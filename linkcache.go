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

// get returns the address's link, which put gives back; the first call
// attaches it. The error is that of an address which cannot be published to.
func (lc *linkCache) get(conn *connection, addr Address) (*sending, error) {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	s := lc.links[addr]
	if s == nil || !s.usable(conn) {
		parsed, err := addr.parse()
		if err != nil {
			return nil, err
		}
		node, err := parsed.Target(conn.dialect)
		if err != nil {
			return nil, err
		}
		s = lc.addLocked(conn, addr, node)
	}
	s.users++
	return s, nil
}

func (lc *linkCache) addLocked(conn *connection, addr Address, node address.Node) *sending {
	var evicted *sending
	delete(lc.links, addr)
	if len(lc.links) >= maxLinks {
		evicted = lc.evictLocked()
	}
	s := newSending(lc.p, conn, addr)
	lc.links[addr] = s
	if lc.timer == nil && !lc.closed {
		lc.timer = time.AfterFunc(linkIdle, lc.closeIdle)
	}
	conn.calls.Go(func() { s.attach(node, evicted) })
	return s
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
// of no use: s is the only one, or it is over with all of them.
func (lc *linkCache) makeRoom(s *sending) bool {
	for {
		lc.mu.Lock()
		lc.wanted.Store(true) // before the look: what becomes idle after it tells
		freed, hopeless := lc.freed, lc.closed || len(lc.links) < 2
		var oldest *sending
		if !hopeless {
			oldest = lc.evictLocked()
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
		case <-s.conn.plane.Done():
			return false
		}
	}
}

// idleLocked reports whether the link is made and nobody uses it.
func (s *sending) idleLocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0 && s.inFlight == 0 && isClosed(s.answered)
}

// evictLocked takes the least recently used link out, nil if all are in use.
func (lc *linkCache) evictLocked() *sending {
	var oldest *sending
	for _, s := range lc.links {
		if s.idleLocked() && (oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
	}
	if oldest != nil {
		delete(lc.links, oldest.addr)
	}
	return oldest
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
			s.conn.calls.Go(func() { _ = s.close(context.Background()) })
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

// forget takes a lost link out, and says whether it was in.
func (lc *linkCache) forget(s *sending) bool {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.links[s.addr] != s {
		return false
	}
	delete(lc.links, s.addr)
	return true
}

// empty takes all links out, for good.
func (lc *linkCache) empty() []*sending {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	lc.closed = true
	lc.tellLocked()
	if lc.timer != nil {
		lc.timer.Stop()
	}
	all := make([]*sending, 0, len(lc.links))
	for _, s := range lc.links {
		all = append(all, s)
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
	_, _, err = conn.send(alone, rand.Text(), node)
	return err
}
