package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/go-amqp"
)

// Message is a delivery with its decoded body. It embeds the Delivery, whose
// methods give the properties, the headers and the settlement.
type Message[T any] struct {
	*Delivery
	Body T
}

// Handler handles one message. nil accepts the delivery; an error is a counted
// retry; Reject, Release and FailFast, or an *OutcomeError, say otherwise.
//
// ctx ends with cause ErrLinkLost when the delivery's link is lost, or the
// peer takes the delivery back; with cause ErrShutdown when Shutdown gives the
// handler up; and after SubscribeOptions.HandlerTimeout. It does not end when
// the handler returns.
//
// A handler that panics, or calls runtime.Goexit, is a *PanicError: it is
// logged with its stack, and the delivery is retried.
type Handler[T any] func(ctx context.Context, m *Message[T]) error

// Subscribe registers fn for the deliveries of addr and returns the
// subscription. Nothing is sent until Connect, which attaches it; on a
// connected broker it is attached in the background, and Attached waits for
// that. What is wrong with addr or opts is returned by Connect, or by Attached
// and Err after it. A nil fn, a zero Broker and more than one opts panic.
//
// The body is decoded into T: []byte, string and json.RawMessage take the
// bytes as they are, anything else is decoded by the codec for the message's
// content type. A body that cannot be decoded is a *DecodeError, which
// SubscribeOptions.OnFailure maps to an outcome; by default it is rejected.
//
// fn is called for one delivery at a time, in the order in which they came,
// unless SubscribeOptions.Workers or PartitionBy says otherwise.
func Subscribe[T any](b *Broker, addr Address, fn Handler[T], opts ...*SubscribeOptions) *Subscription {
	if fn == nil {
		panic("amqpflow: Subscribe: nil handler")
	}
	s := b.register(addr, one("Subscribe", opts), single)
	s.newDelivery = newTyped[T]
	s.start(func(ctx context.Context, c *Call) error {
		d := c.Deliveries[0]
		m := messageOf[T](d)
		if err := decodeBody(s.codecs, d, &m.Body); err != nil {
			return err
		}
		return fn(ctx, m)
	})
	return s
}

// ReplyHandler handles one request and returns its reply. The reply is sent
// when the error is nil; a failed handler sends none.
type ReplyHandler[T, R any] func(ctx context.Context, m *Message[T]) (R, error)

// SubscribeReply registers fn as the responder of addr. Its reply is encoded
// as Publish encodes a value, sent to SubscribeOptions.ReplyTo, else to the
// request's reply-to, and the request is accepted once the peer has accepted
// the reply. The reply's correlation-id is the request's, or its message-id
// where it has none.
//
// A request without a reply address, where no option gives one, is rejected
// with amqp:precondition-failed before fn is called. A reply that cannot be
// published fails like a handler's error: by default the request is retried,
// so fn must bear to see it again. With one worker replies leave one at a
// time; with more, each waits for its own.
//
// Everything else is as for Subscribe.
//
// Spec: 3.2.4 (reply-to, correlation-id).
func SubscribeReply[T, R any](b *Broker, addr Address, fn ReplyHandler[T, R], opts ...*SubscribeOptions) *Subscription {
	if fn == nil {
		panic("amqpflow: SubscribeReply: nil handler")
	}
	s := b.register(addr, one("SubscribeReply", opts), single)
	s.newDelivery = newTyped[T]
	s.start(func(ctx context.Context, c *Call) error {
		d := c.Deliveries[0]
		to, err := s.replyAddress(d)
		if err != nil {
			return err
		}
		m := messageOf[T](d)
		if err := decodeBody(s.codecs, d, &m.Body); err != nil {
			return err
		}
		reply, err := fn(ctx, m)
		if err != nil {
			return err
		}
		return s.c.pub.reply(ctx, d, to, reply)
	})
	return s
}

var errNoReplyAddress = errors.New("the request has no reply-to")

func (s *Subscription) replyAddress(d *Delivery) (Address, error) {
	if s.opts.ReplyTo != "" {
		return s.opts.ReplyTo, nil
	}
	if to := d.ReplyTo(); to != "" {
		return to, nil
	}
	s.tellError(fmt.Errorf("amqpflow: reply to a request from %q: %w", s.addr, errNoReplyAddress))
	return "", &OutcomeError{Outcome: Rejected, Condition: amqp.ErrCondPreconditionFailed, Err: errNoReplyAddress}
}

// BatchHandler handles several messages at once. What it returns is the
// outcome of each that was neither settled nor marked: see Delivery.Mark.
type BatchHandler[T any] func(ctx context.Context, ms []*Message[T]) error

// SubscribeBatch registers fn for batches of up to SubscribeOptions.BatchSize
// deliveries of addr, oldest first. A batch is given to fn when it is full, or
// SubscribeOptions.BatchWait after its first delivery came. A body that cannot
// be decoded is settled (as SubscribeOptions.OnFailure says, by default
// rejected) before the call and is not part of the batch. A panic fails each
// delivery of the batch once. ms is fn's to keep.
//
// SubscribeOptions.Workers batches are handled at once. Everything else is as
// for Subscribe.
func SubscribeBatch[T any](b *Broker, addr Address, fn BatchHandler[T], opts ...*SubscribeOptions) *Subscription {
	if fn == nil {
		panic("amqpflow: SubscribeBatch: nil handler")
	}
	s := b.register(addr, one("SubscribeBatch", opts), batch)
	s.newDelivery = newTyped[T]
	s.prepare = func(d *Delivery) error { return decodeBody(s.codecs, d, &messageOf[T](d).Body) }
	s.start(func(ctx context.Context, c *Call) error {
		ms := make([]*Message[T], len(c.Deliveries))
		for i, d := range c.Deliveries {
			ms[i] = messageOf[T](d)
		}
		return fn(ctx, ms)
	})
	return s
}

// Subscribe registers fn for the deliveries of addr as they come, with their
// bodies not decoded. Everything else is as for the function Subscribe.
func (b *Broker) Subscribe(addr Address, fn func(context.Context, *Delivery) error, opts ...*SubscribeOptions) *Subscription {
	if fn == nil {
		panic("amqpflow: Subscribe: nil handler")
	}
	s := b.register(addr, one("Subscribe", opts), single)
	s.newDelivery = func() *Delivery { return new(Delivery) }
	s.start(func(ctx context.Context, c *Call) error { return fn(ctx, c.Deliveries[0]) })
	return s
}

// Call is one call of a handler: one delivery, or a batch. It is valid until
// the call returns. What middleware takes out of Deliveries the handler does not
// see; it is settled as the others are.
type Call struct {
	Subscription *Subscription
	Deliveries   []*Delivery
}

// CallFunc calls a handler, or the middleware around it. Its error is what the
// handler returned, and becomes the outcome.
type CallFunc func(ctx context.Context, c *Call) error

// Middleware wraps the calls of single, reply and batch handlers alike. It is
// applied once, when a subscription is registered; Options.Middleware stands
// outside SubscribeOptions.Middleware, and in each the first is outermost. It
// sees a handler's panic pass, and may change the outcome by the error that it
// returns. Decoding and the reply are inside, except that a batch is decoded
// before.
type Middleware func(next CallFunc) CallFunc

// wrapped puts the broker's and the subscription's middleware around handle.
func (s *Subscription) wrapped(handle CallFunc) CallFunc {
	for _, m := range slices.Backward(slices.Concat(s.c.opts.Middleware, s.opts.Middleware)) {
		handle = m(handle)
	}
	return handle
}

// typed holds a message and its delivery in one allocation. T is erased behind
// Delivery.typed, and nowhere else.
type typed[T any] struct {
	delivery Delivery
	message  Message[T]
}

func newTyped[T any]() *Delivery {
	t := new(typed[T])
	t.delivery.typed = t
	t.message.Delivery = &t.delivery
	return &t.delivery
}

func messageOf[T any](d *Delivery) *Message[T] { return &d.typed.(*typed[T]).message }
