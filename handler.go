package amqpflow

import "context"

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
// fn is called for one delivery at a time, in the order in which they came.
func Subscribe[T any](b *Broker, addr Address, fn Handler[T], opts ...*SubscribeOptions) *Subscription {
	if fn == nil {
		panic("amqpflow: Subscribe: nil handler")
	}
	s := b.register(addr, one("Subscribe", opts))
	s.newDelivery = newTyped[T]
	s.handle = func(ctx context.Context, d *Delivery) error {
		m := &d.typed.(*typed[T]).message
		if err := decodeBody(s.codecs, d, &m.Body); err != nil {
			return err
		}
		return fn(ctx, m)
	}
	s.start()
	return s
}

// Subscribe registers fn for the deliveries of addr as they come, with their
// bodies not decoded. Everything else is as for the function Subscribe.
func (b *Broker) Subscribe(addr Address, fn func(context.Context, *Delivery) error, opts ...*SubscribeOptions) *Subscription {
	if fn == nil {
		panic("amqpflow: Subscribe: nil handler")
	}
	s := b.register(addr, one("Subscribe", opts))
	s.newDelivery = func() *Delivery { return new(Delivery) }
	s.handle = fn
	s.start()
	return s
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
