package amqpflow

import (
	"context"
	"fmt"
)

// Pause stops the flow of deliveries until Resume: it takes the credit back from
// the peer, ends the holds of retries, and releases what no handler has begun,
// oldest first in each lane, which the peer does not count as an attempt.
// Handlers that run go on, and what they return settles their deliveries; a retry is not held. Of
// a Stream nothing more is yielded. Deliveries of an AtMostOnce subscription
// cannot be released, and wait for Resume.
//
// The link stays attached and the subscription is Paused, for which Ready has
// no complaint. One that is not attached at the moment is Paused once it is.
// Pausing what is paused is fine.
//
// Pause waits, within ctx and for a second at most, until the peer has given the
// credit back, and returns an error where it has not; the subscription is paused
// even so, and what still comes is released. It waits as long for a PartitionBy
// that does not return. It returns an error that wraps
// ErrShutdown, or Err, if the subscription is closing or has ended.
//
// It may be called from a handler. Spec: 2.6.7, 2.6.10 (drain).
func (s *Subscription) Pause(ctx context.Context) error {
	s.mu.Lock()
	if err := s.overLocked(); err != nil {
		s.mu.Unlock()
		return fmt.Errorf("amqpflow: pause %q: %w", s.addr, err)
	}
	s.paused.Store(true)
	told := s.state == Attached
	if told {
		s.state = Paused
	}
	r := s.link
	s.mu.Unlock()
	if told {
		s.tellState(Paused, nil)
	}
	s.arrange()
	if r == nil {
		return nil
	}
	drained := s.drain(ctx, r)
	s.holds.end() // behind the drain: none of them comes back here
	released := s.releaseHeld()
	s.arrange() // it may have been resumed meanwhile
	return first(released, drained)
}

// Resume lets deliveries come again after Pause. On a subscription that is not
// paused it does nothing. It returns an error that wraps ErrShutdown, or Err, if
// the subscription is closing or has ended.
func (s *Subscription) Resume() error {
	s.mu.Lock()
	if err := s.overLocked(); err != nil {
		s.mu.Unlock()
		return fmt.Errorf("amqpflow: resume %q: %w", s.addr, err)
	}
	if !s.paused.CompareAndSwap(true, false) {
		s.mu.Unlock()
		return nil
	}
	told := s.state == Paused
	if told {
		s.state = Attached
	}
	s.mu.Unlock()
	if told {
		s.tellState(Attached, nil)
	}
	s.arrange()
	return nil
}

// arrange lets deliveries flow, or not, as paused and stopping say.
func (s *Subscription) arrange() {
	s.arranging.Lock()
	defer s.arranging.Unlock()
	stopping := s.stopping.Load()
	flows := !stopping && !s.paused.Load()
	for _, in := range s.inboxes {
		in.pause(!flows && !stopping)
	}
	r := s.receiving()
	if flows {
		s.holds.resume()
	}
	switch {
	case r == nil:
	case flows:
		r.link.Thaw()
		r.grant(true)
	default: // a worker may have found that it may grant, and be about to
		r.link.Freeze()
	}
}

// overLocked is why the subscription takes no deliveries for good, nil while it
// may.
func (s *Subscription) overLocked() error {
	switch {
	case s.state == Ended && s.err != nil:
		return s.err
	case s.state == Ended || s.closing != nil:
		return ErrShutdown
	}
	return nil
}
