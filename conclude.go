package amqpflow

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// settle gives a delivery the outcome of result, once. It is called by the
// dispatch loop and by the user, and writes at most one disposition. A retry may
// be held: the error is errHeld then. ctx bounds the publish of a dead letter;
// took is the handler's time; lane is the worker that tries the delivery again
// itself, nil for none.
func (s *Subscription) settle(ctx context.Context, d *Delivery, result error, took time.Duration, lane *worker) (Outcome, error) {
	if result == nil {
		return Accepted, s.settleAs(d, stateAccepted, Accepted)
	}
	state, outcome, err := stateOf(result)
	if err != nil {
		s.c.log.Error("outcome cannot be encoded, retrying", logAddress, string(s.addr), logError, err)
	}
	switch {
	case state == nil:
		s.stopping.Store(true)
		s.c.fail(failFastCause(result))
		return OutcomeNone, nil
	case outcome == Rejected || outcome == Modified:
		f := failure{d: d, state: state, outcome: outcome, err: result, chosen: chosenOutcome(result), took: took, lane: lane}
		return s.failed(ctx, &f)
	}
	return outcome, s.settleAs(d, state, outcome)
}

// settleByHand is settle for the user, and tells of it.
func (s *Subscription) settleByHand(ctx context.Context, d *Delivery, result error) error {
	outcome, err := s.settle(ctx, d, result, since(d.at), nil)
	switch {
	case errors.Is(err, errHeld):
		return nil
	case err == nil && outcome != OutcomeNone:
		s.report(d, outcome, result, nil, since(d.at), levelOf(outcome))
	}
	return err
}

func failFastCause(result error) error {
	if chosen := chosenOutcome(result); chosen != nil && chosen.Err != nil {
		return chosen.Err
	}
	return result
}

// settleAs is settle for an outcome that is decided.
func (s *Subscription) settleAs(d *Delivery, state *wire.State, outcome Outcome) error {
	if err := s.claim(d, statusSettled, outcome); err != nil {
		return err
	}
	return s.dispose(d, state, outcome)
}

// claim makes the caller the one who settles the delivery.
func (s *Subscription) claim(d *Delivery, status uint32, outcome Outcome) error {
	if d.settled {
		return ErrSettled
	}
	if d.status.CompareAndSwap(statusOpen, status) {
		return nil
	}
	if d.status.Load() == statusLost {
		return &SettleError{Address: s.addr, Outcome: outcome, Err: ErrLinkLost}
	}
	return ErrSettled
}

// settleClaimed is settleAs for a delivery that was claimed as held.
func (s *Subscription) settleClaimed(d *Delivery, state *wire.State, outcome Outcome) error {
	if !d.status.CompareAndSwap(statusHeld, statusSettled) {
		return ErrSettled
	}
	return s.dispose(d, state, outcome)
}

// dispose writes the disposition of a delivery that was claimed.
func (s *Subscription) dispose(d *Delivery, state *wire.State, outcome Outcome) error {
	err := s.written(d, outcome, d.from.link.Settle(d.id, state))
	s.reader.done(d)
	if err == nil {
		s.outcomes[outcome].Add(1)
	}
	d.from.grant(false)
	return err
}

// written is the error of a delivery that was settled with err: nil, or why its
// outcome is lost.
func (s *Subscription) written(d *Delivery, outcome Outcome, err error) error {
	if err == nil {
		return nil
	}
	d.status.Store(statusLost)
	return &SettleError{Address: s.addr, Outcome: outcome, Err: err}
}

// finish settles a delivery whose handler has ended with err, unless it is
// settled. ctx and lane are settle's.
func (s *Subscription) finish(ctx context.Context, d *Delivery, err error, started time.Duration, lane *worker) {
	took := since(started)
	outcome, settleErr := s.conclude(ctx, d, err, took, lane)
	if settleErr != nil && errors.Is(settleErr, errHeld) {
		return
	}
	if marked := d.marked.Load(); marked != nil && settleErr == nil {
		err = marked.outcome // it is the reason
	}
	s.report(d, outcome, err, settleErr, took, levelOf(outcome))
}

// report tells the log, at level, and the observer how a delivery ended.
func (s *Subscription) report(d *Delivery, outcome Outcome, err, settleErr error, took time.Duration, level slog.Level) {
	switch {
	case settleErr == nil:
		s.logOutcome(d, outcome, err, level)
		s.c.observe.settled(d, outcome, took, err)
	case errors.Is(settleErr, ErrSettled):
		if d.settled && err != nil {
			s.logDelivery(d, slog.LevelWarn, "handler failed with a delivery that is gone", err)
		} else if err != nil {
			s.c.log.Debug("handler's error after it had settled", logAddress, string(s.addr), logError, err)
		}
	default:
		s.lostSettlement(outcome, settleErr)
		s.c.observe.settled(d, outcome, took, settleErr)
	}
}

// conclude turns what the handler returned, or marked, into the delivery's
// settlement.
func (s *Subscription) conclude(ctx context.Context, d *Delivery, err error, took time.Duration, lane *worker) (Outcome, error) {
	if d.settled {
		d.leave()
		if OutcomeOf(err) == OutcomeNone {
			return s.settle(ctx, d, err, took, lane)
		}
		return OutcomeNone, ErrSettled
	}
	if d.status.Load() != statusOpen {
		return OutcomeNone, ErrSettled
	}
	var result error
	if marked := d.marked.Load(); marked != nil {
		result = marked.outcome
	} else {
		result = s.resolve(d, err)
	}
	return s.settle(ctx, d, result, took, lane)
}

// leave gives back the place in the window of a delivery that came settled.
func (d *Delivery) leave() {
	if err := d.from.link.Settle(d.id, stateAccepted); err == nil {
		d.from.grant(false)
	}
}

// resolve asks OnFailure about an error that chose no outcome.
func (s *Subscription) resolve(d *Delivery, err error) error {
	if err == nil || chosenOutcome(err) != nil {
		return err
	}
	if s.opts.OnFailure == nil {
		return defaultFailure(err)
	}
	return s.ask(d, err)
}

// ask calls OnFailure, in a goroutine that it may end by runtime.Goexit. That, or
// a panic, is a failure that is retried.
func (s *Subscription) ask(d *Delivery, err error) (result error) {
	var asked sync.WaitGroup
	asked.Go(func() {
		returned := false
		defer func() {
			if !returned {
				failure := &PanicError{Address: s.addr, Value: recover(), Stack: debug.Stack()}
				s.c.log.Error("OnFailure panicked", logAddress, string(s.addr), logError, failure.Error(), "stack", string(failure.Stack))
				result = failure
			}
		}()
		result = s.opts.OnFailure(d, err)
		returned = true
	})
	asked.Wait()
	return result
}

// defaultFailure rejects what will never decode and retries the rest.
func defaultFailure(err error) error {
	if _, ok := errors.AsType[*DecodeError](err); ok {
		return &OutcomeError{Outcome: Rejected, Condition: amqp.ErrCondDecodeError, Err: err}
	}
	return err
}

// levelOf is Debug for a settlement, Warn for one that is no success.
func levelOf(outcome Outcome) slog.Level {
	if outcome != Accepted && outcome != OutcomeNone {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (s *Subscription) logOutcome(d *Delivery, outcome Outcome, err error, level slog.Level) {
	if !s.c.log.Enabled(context.Background(), level) { // before anything is made for it
		return
	}
	s.logDelivery(d, level, "settled", err, logOutcome, outcome.String())
}

// logDelivery says something of a delivery, and why.
func (s *Subscription) logDelivery(d *Delivery, level slog.Level, text string, err error, attrs ...any) {
	if !s.c.log.Enabled(context.Background(), level) {
		return
	}
	all := append([]any{
		logAddress, string(s.addr), logLink, d.from.name, logMessage, d.MessageID(), logAttempt, d.Attempt(),
	}, attrs...)
	s.c.log.Log(context.Background(), level, text, append(all, reason(err)...)...)
}

func (s *Subscription) lostSettlement(outcome Outcome, err error) {
	var lost *SettleError
	if !errors.As(err, &lost) {
		lost = &SettleError{Address: s.addr, Outcome: outcome, Err: err}
	}
	s.c.log.Error("settlement lost", logAddress, string(s.addr), logOutcome, lost.Outcome.String(), logError, lost.Err)
	s.tellError(lost)
}
