package amqpflow

import (
	"errors"
	"time"
)

// attempts is what a subscription remembers of its losses and its attaches.
type attempts struct {
	failed int       // in a row: refused, or lost before they were of use
	cause  error     // of the last refusal; nil where it was a loss
	wait   bool      // before the next one
	first  bool      // there was no link yet
	lost   time.Time // when the last link was, or since when there is none
	tries  int       // since then
}

// serve gives the subscription its link, and another whenever that is lost,
// until the subscription is over.
//
// Started by begin, with the link that Connect has attached, or without one by
// add and core.adopt; ends with the subscription's life; waited for by the
// broker's wait group; alone in replacing the subscription's link.
func (s *Subscription) serve(r *receiving) {
	if r == nil {
		s.work()
	}
	if s.invalid != nil {
		s.end(s.invalid)
		return
	}
	s.keep(r, &attempts{first: r == nil, lost: time.Now()})
}

// keep is serve's loop.
func (s *Subscription) keep(r *receiving, a *attempts) {
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in PartitionBy: go on in another goroutine
			s.c.wg.Go(func() { s.keep(r, a) })
		}
	}()
	for {
		if r == nil {
			if r = s.reattach(a); r == nil {
				break
			}
		}
		r.run()
		if !s.linkLost(r, r.link.Err(), a) {
			break
		}
		r = nil
	}
	returned = true
}

// linkLost drops what the subscription holds of a link that is gone, ends its
// handlers' contexts, and says whether it is to be attached again. A handler
// that runs goes on, and its worker begins no other before it has returned.
func (s *Subscription) linkLost(r *receiving, cause error, a *attempts) bool {
	connected := r.conn.usable()
	lost := s.lost(goError(cause))
	broken := errors.Is(cause, ErrCreditExceeded)
	s.mu.Lock()
	over := s.closing != nil || s.state == Ended
	if !over && !broken {
		s.relinkLocked(nil)
		s.answered = make(chan struct{})
	}
	s.mu.Unlock()
	for _, w := range s.workers {
		w.cancel(r, lost)
	}
	if !over || s.reader == nil { // a Stream that is shut down still yields what it holds
		s.purge(r)
	}
	s.holds.drop(r)
	s.handover.forget(r)
	if !over {
		s.reader.lost(r)
	}
	s.reader.settled()
	if over {
		return false
	}
	if connected {
		s.c.log.Warn("link lost", logAddress, string(s.addr), logLink, r.name, logError, cause)
	}
	s.c.release(r)
	if broken {
		s.end(lost)
		return false
	}
	good := r.health.good()
	*a = attempts{failed: a.failed + 1, wait: connected || !good, lost: time.Now()}
	if good {
		a.failed = 1
	}
	s.setState(Attaching, lost)
	return true
}

// purge drops what no handler has begun of a link that is gone. Nothing is
// collected from it behind that.
func (s *Subscription) purge(r *receiving) {
	r.collecting.Lock()
	defer r.collecting.Unlock()
	for _, in := range s.inboxes {
		in.purge(r)
	}
}

// reattach attaches the subscription, once there is a connection, as often as
// it takes. It returns none once the subscription is over.
func (s *Subscription) reattach(a *attempts) *receiving {
	if a.first {
		s.setState(Attaching, nil)
	}
	for s.wait(a) {
		conn, err := s.c.await(s.life)
		if err != nil {
			break
		}
		a.tries++
		r, err := conn.attachReceiver(s)
		if err == nil {
			return s.attached(r, a)
		}
		if s.life.Err() != nil {
			break
		}
		a.failed++
		a.wait, a.cause = true, nil
		if !conn.usable() {
			continue
		}
		if !s.refused(err, a) {
			return nil
		}
	}
	s.abandoned()
	return nil
}

// wait waits before the next attempt, and says whether there is to be one.
func (s *Subscription) wait(a *attempts) bool {
	return !a.wait || s.c.backoff.Wait(s.life, s.c.delay(a.failed, a.cause)) == nil
}

// attached makes r the subscription's link. A subscription that is over
// meanwhile gets none.
func (s *Subscription) attached(r *receiving, a *attempts) *receiving {
	if !s.adopt(r) {
		return nil
	}
	if a.first {
		s.c.log.Info("attached", logAddress, string(s.addr), logLink, r.name)
	} else {
		s.reattached.Add(1)
		s.c.log.Info("recovered", logAddress, string(s.addr), logLink, r.name, logAfter, time.Since(a.lost), logAttempts, a.tries)
	}
	r.grant(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.begun = true
	s.answerLocked()
	return r
}

// refused tells of an attach that the peer refused, and says whether to try
// again.
func (s *Subscription) refused(err error, a *attempts) bool {
	refusal := &AttachError{Address: s.addr, Err: err}
	if unattachable(err) {
		s.end(refusal)
		return false
	}
	a.cause = err
	s.c.log.Warn("attach refused", logAddress, string(s.addr), logAttempt, a.tries, logError, err)
	s.setState(Attaching, refusal)
	if !heals(err) {
		s.tellError(refusal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answerLocked()
	return true
}

// unattachable reports whether err is of a registration that no link can ever be
// attached for, whatever becomes of the peer: only a peer's OPEN tells which
// forms of addresses it has, and which of them are the same node.
func unattachable(err error) bool {
	bad, _ := errors.AsType[*OptionError](err)
	return bad != nil || errors.Is(err, ErrUnsupported)
}

// abandoned ends a subscription whose broker has failed. Where it is closed or
// shut down, whoever does that ends it.
func (s *Subscription) abandoned() {
	s.mu.Lock()
	closing, err := s.closing != nil, s.err
	s.mu.Unlock()
	if closing {
		return
	}
	s.c.mu.Lock()
	stopping := s.c.stop != nil
	s.c.mu.Unlock()
	if !stopping {
		s.end(err)
	}
}

// answerLocked lets those go who wait in Attached.
func (s *Subscription) answerLocked() {
	if !isClosed(s.answered) {
		close(s.answered)
	}
}
