package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// settle gives a delivery the outcome of result, once. It is called by the
// dispatch loop and by the user, and writes at most one disposition.
func (s *Subscription) settle(d *Delivery, result error) error {
	state, outcome, err := stateOf(result)
	if err != nil {
		s.c.log.Error("outcome cannot be encoded, retrying", logAddress, string(s.addr), logError, err)
	}
	if state == nil {
		s.stopping.Store(true)
		s.c.fail(failFastCause(result))
		return nil
	}
	return s.settleAs(d, state, outcome)
}

// settleByHand is settle for the user, and tells of it.
func (s *Subscription) settleByHand(d *Delivery, result error) error {
	err := s.settle(d, result)
	if outcome := OutcomeOf(result); err == nil && outcome != OutcomeNone {
		s.logOutcome(d, outcome, result)
		s.c.observe.settled(d, outcome, since(d.at), result)
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
	if d.settled {
		return ErrSettled
	}
	if !d.status.CompareAndSwap(statusOpen, statusSettled) {
		if d.status.Load() == statusTakenBack {
			return &SettleError{Address: s.addr, Outcome: outcome, Err: errTakenBack}
		}
		return ErrSettled
	}
	err := d.from.link.Settle(d.id, state)
	s.reader.settled()
	if err != nil {
		return &SettleError{Address: s.addr, Outcome: outcome, Err: err}
	}
	s.outcomes[outcome].Add(1)
	d.from.grant(false)
	return nil
}

var errTakenBack = fmt.Errorf("%w: the peer took the delivery back", ErrLinkLost)

// acceptAll accepts a batch under one lock, and returns the deliveries that
// need more than that. ds is overwritten.
func (w *worker) acceptAll(ds []*Delivery, started time.Duration) (rest []*Delivery) {
	s, from := w.s, ds[0].from
	ids, accepted := w.ids[:0], ds[:0]
	for _, d := range ds {
		if d.settled || d.marked.Load() != nil || !d.status.CompareAndSwap(statusOpen, statusSettled) {
			rest = append(rest, d)
			continue
		}
		ids = append(ids, d.id)
		accepted = append(accepted, d)
	}
	w.ids = ids
	err := from.link.SettleAll(ids, stateAccepted)
	if err == nil {
		s.outcomes[Accepted].Add(uint64(len(ids)))
		// A large batch leaves a gap that is to be filled while the next one,
		// which is there already, is handled.
		from.grant(4*len(ids) >= s.opts.Credit)
	} else {
		err = &SettleError{Address: s.addr, Outcome: Accepted, Err: err}
	}
	for _, d := range accepted {
		s.report(d, Accepted, nil, err, started)
	}
	return rest
}

// finish settles a delivery whose handler has ended with err, unless it is
// settled.
func (s *Subscription) finish(d *Delivery, err error, started time.Duration) {
	outcome, settleErr := s.conclude(d, err)
	if marked := d.marked.Load(); marked != nil && settleErr == nil {
		err = marked.outcome // it is the reason
	}
	s.report(d, outcome, err, settleErr, started)
}

// report tells the log and the observer how a delivery ended.
func (s *Subscription) report(d *Delivery, outcome Outcome, err, settleErr error, started time.Duration) {
	switch {
	case settleErr == nil:
		s.logOutcome(d, outcome, err)
		s.c.observe.settled(d, outcome, since(started), err)
	case errors.Is(settleErr, ErrSettled):
		if err != nil {
			s.c.log.Debug("handler's error after it had settled", logAddress, string(s.addr), logError, err)
		}
	default:
		s.lostSettlement(outcome, settleErr)
		s.c.observe.settled(d, outcome, since(started), settleErr)
	}
}

// conclude turns what the handler returned, or marked, into the delivery's
// settlement.
func (s *Subscription) conclude(d *Delivery, err error) (Outcome, error) {
	if d.settled { // at most once: only its place in the window is left to give back
		if err := d.from.link.Settle(d.id, stateAccepted); err == nil {
			d.from.grant(false)
		}
		return OutcomeNone, ErrSettled
	}
	switch d.status.Load() {
	case statusTakenBack:
		s.giveUp(d)
		return OutcomeOf(err), &SettleError{Address: s.addr, Outcome: OutcomeOf(err), Err: errTakenBack}
	case statusSettled:
		return OutcomeNone, ErrSettled
	}
	var result error
	if marked := d.marked.Load(); marked != nil {
		result = marked.outcome
	} else {
		result = s.resolve(d, err)
	}
	return OutcomeOf(result), s.settle(d, result)
}

// resolve asks OnFailure about an error that chose no outcome.
func (s *Subscription) resolve(d *Delivery, err error) (result error) {
	if err == nil || chosenOutcome(err) != nil {
		return err
	}
	if s.opts.OnFailure == nil {
		return defaultFailure(err)
	}
	defer func() {
		if v := recover(); v != nil {
			failure := &PanicError{Address: s.addr, Value: v, Stack: debug.Stack()}
			s.c.log.Error("OnFailure panicked", logAddress, string(s.addr), logError, failure.Error(), "stack", string(failure.Stack))
			result = failure
		}
	}()
	return s.opts.OnFailure(d, err)
}

// defaultFailure rejects what will never decode and retries the rest.
func defaultFailure(err error) error {
	if _, ok := errors.AsType[*DecodeError](err); ok {
		return &OutcomeError{Outcome: Rejected, Condition: amqp.ErrCondDecodeError, Err: err}
	}
	return err
}

// logOutcome writes Debug for each settlement, Warn for one that is no success.
func (s *Subscription) logOutcome(d *Delivery, outcome Outcome, err error) {
	level := slog.LevelDebug
	if outcome != Accepted && outcome != OutcomeNone {
		level = slog.LevelWarn
	}
	if !s.c.log.Enabled(context.Background(), level) {
		return
	}
	attrs := []any{
		logAddress, string(s.addr), logLink, d.from.name, logMessage, d.MessageID(),
		logAttempt, d.Attempt(), logOutcome, outcome.String(),
	}
	s.c.log.Log(context.Background(), level, "settled", append(attrs, reason(err)...)...)
}

func (s *Subscription) lostSettlement(outcome Outcome, err error) {
	var lost *SettleError
	if !errors.As(err, &lost) {
		lost = &SettleError{Address: s.addr, Outcome: outcome, Err: err}
	}
	s.c.log.Error("settlement lost", logAddress, string(s.addr), logOutcome, lost.Outcome.String(), logError, lost.Err)
	s.c.observe.error(lost)
}
