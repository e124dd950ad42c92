package amqpflow

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Observer gets told what happens. Any field may be nil. The functions are
// called from any goroutine, several at once, and must return soon: what they are
// told of waits for them, be it a delivery, the end of a link or the next attempt
// to connect. One that panics is logged and changes nothing else.
//
// Connection, State and Error may call Shutdown, Close and Pause: what they are
// told by is then waited for no longer than half a second. So may Published for
// the outcome of a Send. Settled, Shutdown and Published for a Publish must start
// a goroutine for that: Shutdown waits for whoever calls them.
type Observer struct {
	// Connection is called when the connection is open (up, nil) and when it
	// is gone (false, the cause; nil after a clean Shutdown). While it is gone
	// it is called again with each refusal that time alone will not heal: the
	// credentials (ErrAuthentication), unauthorized-access, not-found,
	// not-allowed.
	Connection func(up bool, err error)
	// State is called when a subscription changes its state, with the cause
	// where there is one: Attaching with the loss that made it attach again, and
	// with each refusal of that, an *AttachError.
	State func(*Subscription, State, error)
	// Settled is called when a delivery was settled, with the time since it
	// was given to the handler, or yielded, and the handler's error, or what
	// Settle or Mark was called with.
	Settled func(*Delivery, Outcome, time.Duration, error)
	// Published is called when the outcome of a publish is known, or that it
	// will not be known (the error says so), with the time that it took.
	Published func(Address, Outcome, time.Duration, error)
	// Shutdown is called at the end of the broker's Shutdown, unless it was never
	// connected.
	Shutdown func(ShutdownReport)
	// Error is called with what no caller is there to receive: a lost
	// settlement, a delivery that could not be read, the end of a
	// subscription, and each refusal of a link or the connection that time alone
	// will not heal.
	Error func(error)
}

// Attribute names of the log.
const (
	logAddress   = "address"
	logLink      = "link"
	logMessage   = "message-id"
	logAttempt   = "attempt"
	logAttempts  = "attempts"
	logAfter     = "after"
	logOutcome   = "outcome"
	logCondition = "condition"
	logDelay     = "delay"
	logError     = "error"
	logPeer      = "peer"
)

// reason is the attribute of an error, none without one.
func reason(err error) []any {
	if err == nil {
		return nil
	}
	return []any{logError, err}
}

// observer calls the user's Observer, and keeps its panics from doing harm.
type observer struct {
	user Observer
	log  *slog.Logger
}

func (o *observer) connection(up bool, err error) {
	if o.user.Connection != nil {
		defer o.guard("Connection")
		o.user.Connection(up, err)
	}
}

func (o *observer) state(s *Subscription, state State, err error) {
	if o.user.State != nil {
		defer o.guard("State")
		o.user.State(s, state, err)
	}
}

func (o *observer) settled(d *Delivery, outcome Outcome, took time.Duration, err error) {
	if o.user.Settled != nil {
		defer o.guard("Settled")
		o.user.Settled(d, outcome, took, err)
	}
}

func (o *observer) published(addr Address, outcome Outcome, took time.Duration, err error) {
	if o.user.Published != nil {
		defer o.guard("Published")
		o.user.Published(addr, outcome, took, err)
	}
}

func (o *observer) shutdown(report ShutdownReport) {
	if o.user.Shutdown != nil {
		defer o.guard("Shutdown")
		o.user.Shutdown(report)
	}
}

func (o *observer) error(err error) {
	if o.user.Error != nil {
		defer o.guard("Error")
		o.user.Error(err)
	}
}

func (o *observer) guard(field string) {
	if v := recover(); v != nil {
		o.log.Error("observer panicked", "field", "Observer."+field, logError, fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}
