package amqpflow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// Sentinels, to be tested for with errors.Is.
var (
	// ErrNotConnected is returned by Publish before Connect and after Shutdown,
	// and while the connection is lost when its context ends, at once where too
	// many wait already (Options.MaxPending) or none may (FailFastPublish); and
	// by every method of a zero Broker. What was to be sent was not sent.
	ErrNotConnected = errors.New("amqpflow: not connected")
	// ErrAuthentication is in the chain of Connect's *ConnectError, and of
	// Ready's error, where the peer refused the credentials.
	ErrAuthentication = errors.New("amqpflow: authentication failed")
	// ErrShutdown is returned by Connect and Run after Shutdown, and is the
	// cause with which a handler's context ends when Shutdown's own context
	// ends before the handler.
	ErrShutdown = errors.New("amqpflow: shut down")
	// ErrConnectedElsewhere is returned by Connect on a broker that
	// ConnectInProcess has connected, and the reverse.
	ErrConnectedElsewhere = errors.New("amqpflow: connected elsewhere")
	// ErrInvalidAddress is returned by Connect for a registered address that
	// is empty or no UTF-8, and by Publish for such an address.
	ErrInvalidAddress = address.ErrInvalid
	// ErrUnsupported is returned where the peer has no form for an address.
	ErrUnsupported = address.ErrUnsupported
	// ErrLinkLost is returned by Settle and Accept when the delivery's link is
	// gone or the peer has taken the delivery back, and is the cause with which
	// a running handler's context ends then.
	ErrLinkLost = dataplane.ErrLinkLost
	// ErrSettled is returned by Settle and Accept for a delivery that is
	// settled, and for every delivery of an AtMostOnce subscription.
	ErrSettled = errors.New("amqpflow: delivery is settled")
	// ErrCreditExceeded is why a subscription ends whose peer sent more than
	// its credit allowed.
	ErrCreditExceeded = dataplane.ErrTransferLimit
	// ErrUncertain is returned by Publish when the peer may or may not have the
	// message: the link was lost, or the wait given up, after the first frame
	// had been queued; or the peer settled without an outcome.
	ErrUncertain = dataplane.ErrUncertain
	// ErrNotSent is returned by Publish when no byte of the message was queued,
	// so that it is safe to publish it again.
	ErrNotSent = dataplane.ErrNotSent
)

// ConnectError is returned by Connect when the connection could not be made.
// URL has no password. Step is the step that failed: parse, dial, tls, sasl,
// open or session.
type ConnectError struct {
	URL  string
	Step string
	Err  error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("amqpflow: connect to %q: %s: %s", e.URL, e.Step, bare(e.Err))
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// AttachError is returned by Connect, Attached, Err and Ready when the peer
// refused the link of an address, and by Publish (inside a *PublishError). A
// subscription of a connected broker tries again.
type AttachError struct {
	Address Address
	Err     error
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("amqpflow: attach %q: %s", e.Address, bare(e.Err))
}

// Unwrap returns the cause; an *amqp.Error where the peer gave one.
func (e *AttachError) Unwrap() error { return e.Err }

// PublishError is returned by Publish when the message was refused by the peer
// (Outcome tells how) or could not be sent (Outcome is OutcomeNone and Err
// says why). Either way it is safe to publish the message again.
type PublishError struct {
	Address     Address
	Outcome     Outcome
	Condition   amqp.ErrCond
	Description string
	Info        map[string]any
	Err         error
}

func (e *PublishError) Error() string {
	text := fmt.Sprintf("amqpflow: publish to %q", e.Address)
	if e.Outcome != OutcomeNone {
		text += ": " + e.Outcome.String() + " by the peer"
	}
	if e.Condition != "" {
		text += ": " + string(e.Condition)
	}
	if e.Description != "" {
		text += ": " + e.Description
	}
	if e.Err != nil {
		text += ": " + bare(e.Err)
	}
	return text
}

// Unwrap returns the cause, nil where the peer gave only an outcome.
func (e *PublishError) Unwrap() error { return e.Err }

// EncodeError is returned by Publish when the value, a header or an annotation
// cannot be encoded. Nothing was sent.
type EncodeError struct {
	Address     Address
	ContentType string
	Err         error
}

func (e *EncodeError) Error() string {
	return fmt.Sprintf("amqpflow: encode %s for %q: %v", orUnknown(e.ContentType), e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *EncodeError) Unwrap() error { return e.Err }

// OptionError is returned by Connect, and by Attached and Err of a
// subscription that was registered after Connect, for an option that is out of
// range. Field is the option's name: "SubscribeOptions.Credit".
type OptionError struct {
	Field string
	Err   error
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("amqpflow: option %s: %v", e.Field, e.Err)
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }

// SettleError is returned by Settle and Accept, and given to Observer.Error,
// when a settlement was lost: the peer will deliver the message again.
type SettleError struct {
	Address Address
	Outcome Outcome
	Err     error
}

func (e *SettleError) Error() string {
	return fmt.Sprintf("amqpflow: settle %q as %s: %s", e.Address, e.Outcome, bare(e.Err))
}

// Unwrap returns the cause; ErrLinkLost is in its chain.
func (e *SettleError) Unwrap() error { return e.Err }

// DecodeError is what OnFailure gets when a body could not be decoded into
// the handler's type. By default the delivery is rejected.
type DecodeError struct {
	Address     Address
	ContentType string
	Err         error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("amqpflow: decode %s from %q: %v", orUnknown(e.ContentType), e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// BodyError is given to Observer.Error when a delivery's body is neither data
// nor a string or binary value. The delivery was rejected with
// amqp:not-implemented. Section says what the body was.
type BodyError struct {
	Address Address
	Section string
}

func (e *BodyError) Error() string {
	return fmt.Sprintf("amqpflow: read body from %q: %s cannot be read as bytes", e.Address, e.Section)
}

// MessageTooLargeError is given to Observer.Error when a delivery was larger
// than SubscribeOptions.MaxMessageSize. The delivery was rejected with
// amqp:link:message-size-exceeded.
type MessageTooLargeError struct {
	Address     Address
	Size, Limit int64
}

func (e *MessageTooLargeError) Error() string {
	return fmt.Sprintf("amqpflow: receive from %q: message of %d bytes is over the limit of %d", e.Address, e.Size, e.Limit)
}

// UnreadableError is given to Observer.Error when a delivery's sections cannot
// be read. The delivery was rejected with amqp:decode-error.
type UnreadableError struct {
	Address Address
	Err     error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("amqpflow: read message from %q: %v", e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }

// PanicError is what OnFailure gets when a handler panicked, or ended its
// goroutine with runtime.Goexit (Value is nil then). By default the delivery
// is retried.
type PanicError struct {
	Address Address
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("amqpflow: handler of %q: called runtime.Goexit", e.Address)
	}
	return fmt.Sprintf("amqpflow: handler of %q: panic: %v", e.Address, e.Value)
}

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// plain is an error that stands inside the text of another: without the
// package's name.
type plain struct{ error }

func (p plain) Error() string { return bare(p.error) }
func (p plain) Unwrap() error { return p.error }

// bare is a cause's text without the package's name, which stands once in a
// text.
func bare(err error) string {
	return strings.ReplaceAll(fmt.Sprint(err), "amqpflow: ", "")
}

func orUnknown(contentType string) string {
	if contentType == "" {
		return "body"
	}
	return contentType
}
