package amqpflow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Outcome is how a delivery ends.
//
// Spec: 3.4 (delivery state).
type Outcome uint8

const (
	// OutcomeNone is no outcome: the delivery stays unsettled and goes back to
	// the peer when its link ends.
	OutcomeNone Outcome = iota
	// Accepted means that the message was processed.
	Accepted
	// Rejected means that the message is invalid; the peer's dead-letter policy
	// decides what becomes of it.
	Rejected
	// Released means that the message was not processed; the attempt is not
	// counted.
	Released
	// Modified means that the message was not processed and has been changed;
	// this package uses it for an attempt that counts as failed.
	Modified
)

var outcomeNames = [...]string{"none", "accepted", "rejected", "released", "modified"}

// String returns the standard's name of the outcome, "none" for OutcomeNone.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// OutcomeError is an error that chooses an outcome: what Retry, RetryAfter,
// Reject, Release, DeadLetter and FailFast return. Built by hand it says what
// they cannot: modified with undeliverable-here or annotations, rejected with a
// condition of one's own. A handler may return it wrapped.
//
// Outcome Modified is a retry, sent with delivery-failed set, and counts towards
// SubscribeOptions.MaxAttempts. Annotations are merged into the message's
// annotations by the peer and must be encodable: keys of type string, values of
// AMQP's types; a delivery whose outcome cannot be encoded is retried.
//
// Spec: 3.4.3 to 3.4.5.
type OutcomeError struct {
	Outcome           Outcome
	Condition         amqp.ErrCond     // of a rejection. Default: amqp:internal-error
	Description       string           // of a rejection. Default: Err's text
	Info              map[string]any   // of a rejection
	UndeliverableHere bool             // of Modified: not to this link again. Held for Delay alone
	Annotations       amqp.Annotations // of Modified
	Delay             time.Duration    // of Modified: how long it is held. Default: the backoff; negative: none
	Err               error

	deadLetter bool // rejected only where no address is set
}

func (e *OutcomeError) Error() string {
	what := e.Outcome.String()
	if e.deadLetter {
		what = "dead-lettered"
	}
	if e.Err == nil {
		return what
	}
	return what + ": " + e.Err.Error()
}

// Unwrap returns the cause, which may be nil.
func (e *OutcomeError) Unwrap() error { return e.Err }

// Retry makes the delivery a counted attempt that the peer delivers again:
// modified with delivery-failed. It is what any other error means, too.
//
// The delivery is held first, for a random time up to a bound that begins at
// SubscribeOptions.RetryMin and doubles with each attempt up to RetryMax; the
// worker handles others meanwhile. It occupies its place in the window, of which
// at most half is held: what fails beyond that leaves at once, as does
// everything that is held when the subscription is paused or ends. Nothing is
// lost where the process dies: the peer has the message until it is settled.
// From SubscribeOptions.MaxAttempts on it is DeadLetter; without that the peer's
// own delivery limit decides how often the message returns.
//
// Spec: 3.4.5.
func Retry(err error) error { return &OutcomeError{Outcome: Modified, Err: err} }

// RetryAfter is Retry with a hold of d, which no backoff shortens or lengthens;
// 0 means the backoff, and less none.
//
// On RabbitMQ from 4.3 on, a hold of more than 10 seconds is the broker's: the
// disposition leaves at once with the annotation x-opt-delivery-time, so that it
// costs no place in the window and survives the process. Quorum queues keep the
// message until then. Classic queues deliver it again at once and cannot be told
// apart before: where that is seen once, which the log says, the subscription
// holds such deliveries itself from then on. With every other peer, and with
// SubscribeOptions.OrderedRetry, the delivery is always held here.
//
// Spec: 3.4.5.
func RetryAfter(d time.Duration, err error) error {
	return &OutcomeError{Outcome: Modified, Delay: d, Err: err}
}

// Reject declares the message invalid. The peer's dead-letter policy decides
// what becomes of it. The description is err's text; the condition is that of
// an *amqp.Error in err's chain, else amqp:internal-error.
//
// Spec: 3.4.3.
func Reject(err error) error { return &OutcomeError{Outcome: Rejected, Err: err} }

// Release gives the delivery back: the attempt is not counted, and any
// consumer, this one included, may get it at once.
//
// Spec: 3.4.4.
func Release() error { return &OutcomeError{Outcome: Released} }

// DeadLetter puts the message aside: it is published to
// SubscribeOptions.DeadLetter with the reason, see there, and accepted once the
// peer has confirmed that. A publish that fails makes it a retry, so the message
// is never lost, and may be put aside twice. Where no address is set it is
// Reject(err).
func DeadLetter(err error) error {
	return &OutcomeError{Outcome: Rejected, Err: err, deadLetter: true}
}

// FailFast leaves the delivery unsettled and ends the broker: Run returns err,
// Err returns it and Done is closed. The peer delivers the message again.
func FailFast(err error) error { return &OutcomeError{Outcome: OutcomeNone, Err: err} }

// OutcomeOf returns the outcome that a handler's result stands for, before
// SubscribeOptions.OnFailure and MaxAttempts: nil is Accepted, an *OutcomeError
// in the chain decides (DeadLetter is Rejected), any other error is Modified. It
// is pure, for unit tests of a handler.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Accepted
	}
	if chosen := chosenOutcome(err); chosen != nil {
		return chosen.Outcome
	}
	return Modified
}

// chosenOutcome returns the outcome that err carries, nil if it carries none.
func chosenOutcome(err error) *OutcomeError {
	chosen, _ := errors.AsType[*OutcomeError](err)
	return chosen
}

// The states that carry nothing are shared, so that settling allocates nothing.
var (
	stateAccepted = &wire.State{Kind: wire.StateAccepted}
	stateReleased = &wire.State{Kind: wire.StateReleased}
	stateRetry    = &wire.State{Kind: wire.StateModified, DeliveryFailed: true}
)

// stateOf turns a handler's result into the delivery state that goes on the
// wire. A nil state means that the delivery stays unsettled.
func stateOf(result error) (*wire.State, Outcome, error) {
	if result == nil {
		return stateAccepted, Accepted, nil
	}
	chosen := chosenOutcome(result)
	if chosen == nil {
		return stateRetry, Modified, nil
	}
	switch chosen.Outcome {
	case OutcomeNone:
		return nil, OutcomeNone, nil
	case Accepted:
		return stateAccepted, Accepted, nil
	case Released:
		return stateReleased, Released, nil
	case Rejected:
		return chosen.rejected()
	case Modified:
		return chosen.modified()
	default:
		return stateRetry, Modified, fmt.Errorf("unknown outcome %d", chosen.Outcome)
	}
}

func (e *OutcomeError) rejected() (*wire.State, Outcome, error) {
	cond, description, info := e.Condition, e.Description, e.Info
	if remote, ok := errors.AsType[*amqp.Error](e.Err); ok {
		if cond == "" {
			cond = remote.Condition
		}
		if info == nil {
			info = remote.Info
		}
	}
	if cond == "" {
		cond = amqp.ErrCondInternalError
	}
	if description == "" && e.Err != nil {
		description = e.Err.Error()
	}
	if !isASCII(string(cond)) {
		return stateRetry, Modified, fmt.Errorf("OutcomeError.Condition: %q is not ASCII", cond)
	}
	fields, err := symbolMap(info)
	if err != nil {
		return stateRetry, Modified, fmt.Errorf("OutcomeError.Info: %w", err)
	}
	return &wire.State{Kind: wire.StateRejected, Error: &wire.Error{
		Condition: wire.Symbol(cond), Description: clip(description), Info: fields,
	}}, Rejected, nil
}

func (e *OutcomeError) modified() (*wire.State, Outcome, error) {
	if !e.UndeliverableHere && len(e.Annotations) == 0 {
		return stateRetry, Modified, nil
	}
	annotations, err := annotationMap(e.Annotations)
	if err != nil {
		return stateRetry, Modified, fmt.Errorf("OutcomeError.Annotations: %w", err)
	}
	return &wire.State{
		Kind: wire.StateModified, DeliveryFailed: true,
		UndeliverableHere: e.UndeliverableHere, Annotations: annotations,
	}, Modified, nil
}

// maxDescription keeps a disposition within the smallest frame size that a
// peer may ask for, 512 bytes.
const maxDescription = 256

func clip(s string) string { return clipTo(s, maxDescription) }

// clipTo makes s a string of AMQP of at most limit octets.
func clipTo(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "?") // never longer than what it replaces
}
