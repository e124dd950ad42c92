package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/amqpflow/amqpflow/internal/backoff"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// failure is a delivery that is to be retried, rejected or dead-lettered.
type failure struct {
	d       *Delivery
	state   *wire.State
	outcome Outcome
	err     error         // why
	chosen  *OutcomeError // in err; nil where it chose no outcome
	took    time.Duration // of the handler
	lane    *worker       // which tries the delivery again itself; nil for none
}

// errHeld says that a delivery is held and will be settled, and reported, when
// its hold ends.
var errHeld = errors.New("held")

// failed decides what becomes of a failure.
func (s *Subscription) failed(ctx context.Context, f *failure) (Outcome, error) {
	asked := f.chosen != nil && f.chosen.deadLetter
	exhausted := f.outcome == Modified && s.opts.MaxAttempts > 0 && f.d.Attempt() >= s.opts.MaxAttempts
	switch {
	case asked || exhausted:
		return s.deadLetter(ctx, f)
	case f.outcome == Modified:
		if err := s.claim(f.d, statusHeld, Modified); err != nil {
			return Modified, err
		}
		return s.retry(f)
	}
	return f.outcome, s.settleAs(f.d, f.state, f.outcome)
}

// retry holds a delivery that is claimed, or has its broker do so, or sends it
// back at once.
func (s *Subscription) retry(f *failure) (Outcome, error) {
	delay := s.delay(f)
	if f.lane == nil && s.handsOver(f.d, delay) {
		err := s.settleClaimed(f.d, delayed(f.state, delay), Modified)
		if err == nil {
			s.handover.remember(f.d, delay)
			s.logDelivery(f.d, slog.LevelWarn, "retry handed over to the peer", f.err, logDelay, delay)
		}
		return Modified, err
	}
	if (delay > 0 || f.lane != nil) && s.hold(f, delay) {
		s.logDelivery(f.d, slog.LevelWarn, "retry held", f.err, logDelay, delay)
		return Modified, errHeld
	}
	return Modified, s.settleClaimed(f.d, f.state, Modified)
}

// delay is how long a retry is to be held.
func (s *Subscription) delay(f *failure) time.Duration {
	switch {
	case f.chosen != nil && f.chosen.Delay != 0:
		return f.chosen.Delay
	case f.chosen != nil && f.chosen.UndeliverableHere, s.opts.RetryMin < 0:
		return 0
	}
	grows := backoff.Policy{Min: s.opts.RetryMin, Max: s.opts.RetryMax, Jitter: s.c.backoff.Jitter}
	return grows.Delay(f.d.Attempt())
}

// hold makes a claimed delivery wait, and says whether it does.
func (s *Subscription) hold(f *failure, delay time.Duration) bool {
	e := &held{d: f.d, state: f.state, due: time.Now().Add(delay), err: f.err, took: f.took, lane: f.lane}
	if f.lane == nil {
		return s.holds.add(e)
	}
	return f.lane.hold(e)
}

// deadLetter publishes a failure to the dead-letter address and accepts it, or
// rejects it where there is none. What cannot be published is retried.
func (s *Subscription) deadLetter(ctx context.Context, f *failure) (Outcome, error) {
	if s.opts.DeadLetter == "" {
		if f.outcome == Modified {
			var err error
			if f.state, f.outcome, err = (&OutcomeError{Outcome: Rejected, Err: f.err}).rejected(); err != nil {
				s.c.log.Error("outcome cannot be encoded, retrying", logAddress, string(s.addr), logError, err)
			}
		}
		return f.outcome, s.settleAs(f.d, f.state, f.outcome)
	}
	if err := s.claim(f.d, statusHeld, Accepted); err != nil {
		return Accepted, err
	}
	if err := s.putAside(ctx, f); err != nil {
		err = fmt.Errorf("amqpflow: dead-letter a delivery from %q: %w", s.addr, err)
		s.tellError(err)
		f.state, f.err = stateRetry, err
		return s.retry(f)
	}
	s.logDelivery(f.d, slog.LevelWarn, "dead-lettered", f.err, "to", string(s.opts.DeadLetter))
	return Accepted, s.settleClaimed(f.d, stateAccepted, Accepted)
}
