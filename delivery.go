package amqpflow

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Delivery is one delivery of a message. It stays valid after the handler
// returned; what it hands out must not be changed. Its methods are safe for
// concurrent use.
//
// Spec: 2.6.12 (transferring a message), 3.2 (message format).
type Delivery struct {
	from    *receiving // the link that brought it, and so its generation
	id      uint32
	count   uint32 // delivery-count
	status  atomic.Uint32
	settled bool // by the peer, when it sent it
	payload []byte
	data    []byte // the body's bytes
	props   []byte // the properties' encoded list
	headers []byte // the application-properties' encoded map
	typed   any    // the *typed[T] around it
	decoded atomic.Pointer[decodedMessage]
	marked  atomic.Pointer[mark]
	at      time.Duration // since the start of the process: when it came, kept for batches alone; then when it was handed out, kept for an observer
}

// mark is an outcome chosen by Mark.
type mark struct{ outcome error }

func (d *Delivery) came() time.Time { return processStart.Add(d.at) }

// Delivery.status.
const (
	statusOpen uint32 = iota
	statusSettled
	statusHeld // its outcome is decided, its disposition waits
	statusLost // it was to be settled, and its link was gone, or the peer had taken it back
)

type decodedMessage struct {
	once sync.Once
	msg  amqp.Message
	err  error
}

// Address returns the address that its subscription was registered with.
func (d *Delivery) Address() Address { return d.from.s.addr }

// Attempt returns which attempt at the message this is, from 1: the
// delivery-count of its header, plus one. A peer that keeps no count always
// says 1; RabbitMQ's classic queues are one.
//
// Spec: 3.2.1.
func (d *Delivery) Attempt() int { return int(d.count) + 1 }

// MessageID returns the message-id, "" if absent: a ulong in decimal digits, a
// uuid in its usual form, a binary in hexadecimal digits.
//
// Spec: 3.2.4, as for the four below.
func (d *Delivery) MessageID() string { return d.property(wire.PropMessageID) }

// CorrelationID returns the correlation-id, in the form of MessageID.
func (d *Delivery) CorrelationID() string { return d.property(wire.PropCorrelationID) }

// Subject returns the subject, "" if absent.
func (d *Delivery) Subject() string { return d.property(wire.PropSubject) }

// ContentType returns the content-type, "" if absent.
func (d *Delivery) ContentType() string { return d.property(wire.PropContentType) }

// GroupID returns the group-id, "" if absent.
func (d *Delivery) GroupID() string { return d.property(wire.PropGroupID) }

// ReplyTo returns the reply-to as a raw address, "" if absent.
func (d *Delivery) ReplyTo() Address {
	node := d.property(wire.PropReplyTo)
	if node == "" {
		return ""
	}
	return Raw(node)
}

// CreationTime returns the creation-time, zero if absent.
func (d *Delivery) CreationTime() time.Time {
	value, ok := wire.LookupProperty(d.props, wire.PropCreationTime)
	if !ok {
		return time.Time{}
	}
	t, _ := goValue(value).(time.Time)
	return t
}

func (d *Delivery) property(index int) string {
	value, ok := wire.LookupProperty(d.props, index)
	if !ok {
		return ""
	}
	switch v := goValue(value).(type) {
	case string:
		return v
	case uint64:
		return strconv.FormatUint(v, 10)
	case amqp.UUID:
		return v.String()
	case []byte:
		return hex.EncodeToString(v)
	default:
		return ""
	}
}

// replyCorrelation is the correlation-id that a reply gets: the request's, or
// its message-id, of the type that it has.
func (d *Delivery) replyCorrelation() any {
	for _, index := range []int{wire.PropCorrelationID, wire.PropMessageID} {
		if value, ok := wire.LookupProperty(d.props, index); ok {
			return goValue(value)
		}
	}
	return nil
}

// contentType is ContentType without a copy.
func (d *Delivery) contentType() []byte {
	value, ok := wire.LookupProperty(d.props, wire.PropContentType)
	if !ok {
		return nil
	}
	b, _ := wire.RawBytes(value)
	return b
}

// Header returns an application property by its name, nil if absent. It has
// the Go type that go-amqp decodes: a symbol is a string, a uuid an amqp.UUID,
// a timestamp a time.Time. What go-amqp cannot decode is a rune (char) or an
// array of bytes with the number's IEEE 754 form (decimal32, 64, 128).
//
// Spec: 3.2.5.
func (d *Delivery) Header(name string) any {
	value, ok := wire.LookupString(d.headers, name)
	if !ok {
		return nil
	}
	return goValue(value)
}

// Headers returns all application properties, nil if there are none. Each
// call makes a new map.
func (d *Delivery) Headers() map[string]any {
	if d.headers == nil {
		return nil
	}
	m, err := wire.DecodeMap(d.headers)
	if err != nil {
		return nil
	}
	headers := make(map[string]any, len(m))
	for _, e := range m {
		if name, ok := e.Key.(string); ok {
			headers[name] = toGo(e.Value)
		}
	}
	return headers
}

// Annotation returns a message annotation by its key, nil if absent. The key
// is a string (a symbol on the wire), a uint64 or an int64.
//
// Spec: 3.2.3.
func (d *Delivery) Annotation(key any) any {
	var sections wire.Sections
	if err := sections.Parse(d.payload); err != nil || sections.MessageAnnotations == nil {
		return nil
	}
	m, err := wire.DecodeMap(sections.MessageAnnotations)
	if err != nil {
		return nil
	}
	for _, e := range m {
		if toGo(e.Key) == key {
			return toGo(e.Value)
		}
	}
	return nil
}

// Data returns the bytes of the body: its data sections, one after the other,
// or its string or binary value. A message without a body has none.
//
// Spec: 3.2.6, 3.2.8.
func (d *Delivery) Data() []byte { return d.data }

// AMQP returns the whole message as go-amqp decodes it. It is decoded once, on
// the first call. The error is go-amqp's, for a message that holds what it
// cannot decode, although the handler got the delivery: a char, a decimal, an
// array of lists.
func (d *Delivery) AMQP() (*amqp.Message, error) {
	decoded := d.decoded.Load()
	if decoded == nil {
		decoded = &decodedMessage{}
		if !d.decoded.CompareAndSwap(nil, decoded) {
			decoded = d.decoded.Load()
		}
	}
	decoded.once.Do(func() {
		if err := decoded.msg.UnmarshalBinary(d.payload); err != nil {
			decoded.err = fmt.Errorf("amqpflow: decode message from %q: %w", d.Address(), err)
		}
	})
	if decoded.err != nil {
		return nil, decoded.err
	}
	return &decoded.msg, nil
}

// Accept settles the delivery as accepted. It is Settle with nil.
func (d *Delivery) Accept(ctx context.Context) error { return d.Settle(ctx, nil) }

// Settle settles the delivery now, in a handler or after it; what the handler
// returns then is only logged. outcome is what a handler returns: nil, an
// error, Retry, Reject, Release, an *OutcomeError; FailFast settles nothing and
// ends the broker. OnFailure is not asked; MaxAttempts counts. A retry is held
// as a handler's, and Settle returns at once.
//
// It hands the disposition to the connection and does not wait: nil means handed
// over, not confirmed. ctx bounds the publish of a dead letter, the one thing that
// is waited for; an ended one keeps nothing else back. It returns ErrSettled if the delivery is settled, and a
// *SettleError that wraps ErrLinkLost if its link is gone or the peer has
// taken it back: the peer delivers the message again. Of many callers exactly
// one settles.
//
// Spec: 2.6.12, 2.7.6 (disposition).
func (d *Delivery) Settle(ctx context.Context, outcome error) error {
	return d.from.s.settleByHand(ctx, d, outcome)
}

// Mark chooses the outcome that the delivery gets when its handler has
// returned, whatever the handler returns: nil, an error, or an outcome, as
// from a handler. OnFailure is not asked. It does no I/O; the last mark counts,
// and a settlement before the handler returns wins over it. It is meant for
// batches, in which one return value stands for many deliveries, and means
// nothing to a Stream.
func (d *Delivery) Mark(outcome error) { d.marked.Store(&mark{outcome}) }

// goValue decodes one encoded value into the Go type that go-amqp would give.
func goValue(encoded []byte) any {
	v, _, err := wire.DecodeValue(encoded)
	if err != nil {
		return nil
	}
	return toGo(v)
}
