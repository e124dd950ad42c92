package amqpflow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// session is one session, in go-amqp and in the data plane.
type session struct {
	plane *dataplane.Session
	amqp  *amqp.Session

	begun chan struct{} // closed when plane and amqp, or err, are set
	err   error

	// The sessions' lock guards these.
	links   int // receiving links on it, and one for being the publisher's
	retired bool
}

// lost reports whether the session could not begin, or has ended.
func (s *session) lost() bool {
	return isClosed(s.begun) && (s.err != nil || isClosed(s.plane.Done()))
}

// sessions hands out a connection's sessions within the peer's channel-max and
// Options.MaxSessions: the publisher's first, then one for each subscription,
// so that a slow one does not use up the window of another; subscriptions
// share once they would be too many.
type sessions struct {
	limit   int // how many there may be
	reserve int // kept free for a new publisher's session and for probing

	mu   sync.Mutex
	used int
	subs []*session
}

func (ss *sessions) init(limit int) {
	ss.limit, ss.reserve = limit, min(2, limit/8)
}

// choose returns a session for a receiving link: a new one, which the caller
// has to begin, or the one with the fewest links.
func (ss *sessions) choose(publisher *session) (s *session, fresh bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.retireLocked()
	if ss.used < ss.limit-ss.reserve {
		s = &session{begun: make(chan struct{}), links: 1}
		ss.used++
		ss.subs = append(ss.subs, s)
		return s, true
	}
	for _, other := range ss.subs {
		if s == nil || other.links < s.links {
			s = other
		}
	}
	if s == nil {
		s = publisher
	}
	s.links++
	return s, false
}

// leave takes a link off a session and says whether it was the last.
func (ss *sessions) leave(s *session) (last bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s.links--; s.links > 0 {
		return false
	}
	if s.retired {
		return true
	}
	ss.used--
	ss.subs = slices.DeleteFunc(ss.subs, func(other *session) bool { return other == s })
	return true
}

// retire gives back the place of a session that is lost, whether or not its
// last link has left.
func (ss *sessions) retire(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !s.retired {
		s.retired = true
		ss.used--
	}
}

// retireLocked does that for the subscriptions' sessions, which nobody may join
// any more.
func (ss *sessions) retireLocked() {
	ss.subs = slices.DeleteFunc(ss.subs, func(s *session) bool {
		if s.lost() && !s.retired {
			s.retired = true
			ss.used--
		}
		return s.retired
	})
}

// take counts a session that is no subscription's. It returns an error where
// there is none left.
func (ss *sessions) take() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.used >= ss.limit {
		return dataplane.ErrLimit
	}
	ss.used++
	return nil
}

// newSession begins a session that is no subscription's.
func (cn *connection) newSession() (*session, error) {
	if err := cn.sessions.take(); err != nil {
		return nil, err
	}
	s := &session{begun: make(chan struct{}), links: 1}
	cn.begin(s)
	if s.err != nil {
		cn.sessions.leave(s)
		return nil, s.err
	}
	return s, nil
}

// receivingSession returns a session for a subscription's link.
func (cn *connection) receivingSession() (*session, error) {
	publisher, err := cn.c.pub.links.session(cn)
	if err != nil {
		return nil, err
	}
	s, fresh := cn.sessions.choose(publisher)
	if fresh {
		cn.begin(s)
	} else {
		<-s.begun
	}
	err = s.err
	if err == nil && isClosed(s.plane.Done()) {
		err = s.plane.Err()
	}
	if err != nil {
		cn.sessions.leave(s)
		return nil, err
	}
	return s, nil
}

// begin begins s, one at a time on a connection, and sets s.err if it fails.
//
// Spec: 2.5.1.
func (cn *connection) begin(s *session) {
	defer close(s.begun)
	select {
	case cn.opening <- struct{}{}:
		defer func() { <-cn.opening }()
	case <-cn.plane.Done():
		s.err = cn.plane.Err()
		return
	}
	if s.plane, s.err = cn.plane.ExpectSession(); s.err != nil {
		return
	}
	if s.amqp, s.err = cn.amqp.NewSession(context.Background(), nil); s.err == nil {
		return
	}
	s.plane.Forget()
	if lost := s.plane.Err(); lost != nil {
		s.err = lost
	}
	s.err = cn.cause(s.err)
}

// leave takes a link off its session, and ends the session with its last link.
//
// Spec: 2.5.6.
func (cn *connection) leave(ctx context.Context, s *session) error {
	if !cn.sessions.leave(s) || isClosed(s.plane.Done()) {
		return nil
	}
	var nudging sync.WaitGroup
	ended := make(chan struct{})
	nudging.Go(func() { cn.nudge(ended) })
	defer nudging.Wait()
	defer close(ended)
	if err := s.amqp.Close(ctx); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}

// nudgeAfter is how long an END is left alone.
const nudgeAfter = 5 * time.Millisecond

// nudge sends empty frames, ever more rarely, until ended is closed. Artemis
// writes the answer to a connection's second END only when something else
// comes in, or when it next looks after its connections, which is every 2 s.
//
// Started by leave; ends with it; waited for by it.
//
// Spec: 2.3.1 (a frame without a body has no other meaning than traffic).
func (cn *connection) nudge(ended <-chan struct{}) {
	for wait := nudgeAfter; ; wait *= 2 {
		select {
		case <-ended:
			return
		case <-time.After(wait):
		}
		if _, err := cn.plane.Write(emptyFrame[:]); err != nil {
			return // the connection is gone, and the session with it
		}
	}
}

var emptyFrame = [wire.FrameHeaderSize]byte{3: wire.FrameHeaderSize, 4: 2}

// discard leaves a session without waiting.
func (cn *connection) discard(s *session) {
	cn.c.calls.Go(func() { _ = cn.leave(context.Background(), s) })
}
