package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// stop is steps 1 to 4 for one subscription.
func (s *Subscription) stop(ctx context.Context, st *stop) error {
	settle := s.quiesce(ctx, st)
	late, cancel := withGrace(ctx)
	defer cancel()
	detach := s.detach(late)
	s.end(nil)
	return first(settle, detach)
}

// quiesce takes the credit back, lets the running handler finish, and releases
// what no handler has begun.
func (s *Subscription) quiesce(ctx context.Context, st *stop) error {
	s.mu.Lock()
	if s.closing == nil {
		s.closing = &stop{done: closedChannel}
	}
	r, ended := s.link, s.state == Ended
	s.counts.begun = s.settledSoFar()
	s.mu.Unlock()
	s.endLife()
	s.stopping.Store(true)
	if s.reader == nil {
		s.closeInboxes()
	}
	if r == nil || ended { // handlers of a link that is lost may run
		s.holds.end()
		return s.awaitHandlers(ctx, st)
	}
	s.setState(Draining, nil)
	s.arrange()
	drained := s.drain(ctx, r)
	s.holds.end() // behind the drain: none of them comes back here
	if s.reader != nil {
		s.closeInboxes()
		return first(s.reader.quiet(ctx, r), drained)
	}
	released := s.releaseHeld()
	finished := s.awaitHandlers(ctx, st)
	return first(finished, released, s.releaseHeld(), drained)
}

// maxDrain is how long a peer has to give the credit back.
const maxDrain = time.Second

// drain takes the credit back. That the link is closed by now is no error: a
// Shutdown beside a Close, or beside a Pause, has done it and all that follows.
//
// Spec: 2.6.7.
func (s *Subscription) drain(caller context.Context, r *receiving) error {
	bound := maxDrain
	if deadline, ok := caller.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(caller, bound)
	defer cancel()
	err := r.link.Drain(ctx)
	sweeping, cancelSweep := context.WithTimeout(caller, bound)
	defer cancelSweep()
	r.sweep(sweeping)
	if err != nil && !errors.Is(r.link.Err(), dataplane.ErrClosed) {
		return fmt.Errorf("amqpflow: drain %q: %w", s.addr, err)
	}
	return nil
}

// releaseHeld gives back what no handler has begun, oldest first, lane by lane.
// What the peer sent settled cannot be given back: it stays through a pause, and
// is lost at the end.
func (s *Subscription) releaseHeld() error {
	s.releasing.Lock()
	defer s.releasing.Unlock()
	var failed error
	for _, in := range s.inboxes {
		for _, d := range in.all(!s.stopping.Load()) {
			if d.settled {
				d.leave()
				continue
			}
			switch err := s.settleAs(d, stateReleased, Released); {
			case err == nil:
				s.counts.released.Add(1)
			case failed == nil:
				failed = err
			}
		}
	}
	return failed
}

// awaitHandlers waits for the running handlers, but those that wait for st, until
// ctx ends, then ends their contexts.
func (s *Subscription) awaitHandlers(ctx context.Context, st *stop) error {
	var running atomic.Int32
	err := each(s.workers, func(w *worker) error {
		if err := w.settled(ctx, st); err != nil {
			w.abandon(ErrShutdown)
			s.c.log.Warn("handler did not return", logAddress, string(s.addr))
			running.Add(1)
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("amqpflow: stop %q: %d of %d handlers did not return: %w", s.addr, running.Load(), len(s.workers), err)
	}
	return nil
}

// detach closes the link and ends its session. A link that was lost first is an
// error: what was settled last may not have arrived.
func (s *Subscription) detach(late *lateSteps) error {
	r := s.receiving()
	if r == nil {
		return nil
	}
	var link error
	if !isClosed(r.link.Done()) {
		err := r.recv.Close(late[stepDetach])
		switch {
		case err == nil:
		case late[stepDetach].Err() != nil:
			link = fmt.Errorf("amqpflow: detach %q: %w", s.addr, err)
		default:
			link = fmt.Errorf("amqpflow: detach %q: %w: %w", s.addr, ErrLinkLost, err)
		}
	}
	cause := r.link.Err()
	if cause != nil && !errors.Is(cause, dataplane.ErrClosed) && s.State() != Ended {
		link = s.lost(goError(cause))
	}
	session := r.leave(late[stepEnd])
	if session != nil && r.conn.usable() { // else it went with the connection
		return first(link, fmt.Errorf("amqpflow: detach %q: %w", s.addr, session))
	}
	return link
}
