package amqpflow

import (
	"errors"
	"fmt"
	"time"
)

// SubscribeOptions configures a subscription. The zero value of a field means
// its default.
type SubscribeOptions struct {
	// Credit is the window, in deliveries: how many the peer may have sent us
	// that are not settled. From 1 to 1,048,576.
	//
	// Default: 256.
	Credit int
	// Workers is how many calls of the handler run at once, at most Credit.
	// With more than one, deliveries are not handled in order, unless
	// PartitionBy keeps some of them so.
	//
	// Default: 1.
	Workers int
	// PartitionBy makes Workers lanes instead: deliveries of one key are handled
	// one at a time, in order, in the lane of that key; those with the key ""
	// go to the lanes in turn. Lanes do not wait for each other while the
	// window has room for their deliveries. It is called from the receive
	// goroutine and must return soon.
	PartitionBy func(*Delivery) string
	// BatchSize is how many deliveries SubscribeBatch gives to one call at
	// most; at most Credit.
	//
	// Default: 100, or Credit where that is less.
	BatchSize int
	// BatchWait is how long a batch that is not full waits, from the coming of
	// its first delivery.
	//
	// Default: 10 milliseconds.
	BatchWait time.Duration
	// HandlerTimeout cancels the context of a handler that runs longer. It
	// only cancels: what the handler returns is the outcome.
	//
	// Default: none.
	HandlerTimeout time.Duration
	// MaxAttempts is how many attempts there are at a message, counted by
	// Delivery.Attempt: a retry of the last one is DeadLetter instead. A peer
	// that keeps no count, as RabbitMQ's classic queues, says 1 each time.
	//
	// Default: no limit but the peer's.
	MaxAttempts int
	// RetryMin is the bound of the hold before the first retry; it doubles with
	// each attempt, up to RetryMax. A negative value means that retries leave at
	// once.
	//
	// Default: 100 milliseconds, or RetryMax where that is less.
	RetryMin time.Duration
	// RetryMax is what the hold before a retry is at most, RetryAfter's apart.
	//
	// Default: 10 seconds, or RetryMin where that is more.
	RetryMax time.Duration
	// OrderedRetry keeps the order of a lane across retries: a delivery whose
	// handler fails waits in its lane, which is the whole subscription without
	// PartitionBy, is handed to the handler again after its backoff, and the lane
	// goes on once it succeeded, was dead-lettered or reached MaxAttempts. The
	// other lanes flow meanwhile. Its attempts count on from the peer's count, of
	// which the peer learns nothing; so without MaxAttempts they never end. What
	// waits behind it may come to fill the window: once that is more than half,
	// Observer.Error and the log say so. Release, and a retry that is settled by
	// hand, leave the order.
	//
	// It goes with one worker or PartitionBy, and neither with a batch nor with
	// AtMostOnce.
	OrderedRetry bool
	// DeadLetter is where DeadLetter, and MaxAttempts, put messages aside. They
	// keep their annotations, properties and body; what goes is what a broker
	// would refuse from another sender (user-id, annotations that do not begin
	// with "x-"), what would delay or expire them (time to live and
	// absolute-expiry-time, x-opt-delivery-time and -delay), and the footer. These
	// application properties are added:
	//
	//	dead-letter-reason       "handler", "max-attempts", or the condition of an *amqp.Error
	//	dead-letter-description  the error's text, up to 1 KiB
	//	dead-letter-source       the address of the subscription
	//	dead-letter-attempts     Delivery.Attempt, a long
	//	dead-letter-time         when, a timestamp
	//
	// The worker waits for the confirmation, for up to 30 seconds. Publish
	// middleware does not see dead letters. The address that is subscribed to, by
	// whatever name the peer takes for it, is an *OptionError.
	//
	// Default: they are rejected, and the peer's dead-letter policy decides.
	DeadLetter Address
	// OnFailure maps a failure, that is an error which chose no outcome, a
	// *DecodeError or a *PanicError, to what the handler should have returned:
	// nil, an error or an outcome. It is called from the handler's goroutine.
	//
	// Default: a *DecodeError is rejected, everything else retried.
	OnFailure func(*Delivery, error) error
	// ReplyTo is where SubscribeReply sends its replies, whatever the reply-to
	// of the request.
	//
	// Default: the request's reply-to.
	ReplyTo Address
	// MaxMessageSize is the largest body, in bytes, that is given to the
	// handler. A larger one is rejected and reported as a
	// *MessageTooLargeError. A negative value means no limit.
	//
	// Default: 64 MiB.
	MaxMessageSize int64
	// AtMostOnce lets the peer send its deliveries settled: each is gone from
	// the peer once it is sent. What the handler returns is logged, and has no
	// outcome: only FailFast means what it says.
	//
	// Spec: 2.6.12, 2.8.2 (sender settle mode settled).
	AtMostOnce bool
	// LinkProperties go into ATTACH. Values must be of AMQP's types.
	LinkProperties map[string]any
	// Codec decodes the bodies, whatever their content type.
	//
	// Default: by content type among Options.Codecs.
	Codec Codec
	// Middleware wraps the handler, the first outermost, inside
	// Options.Middleware.
	Middleware []Middleware
}

const (
	defaultCredit         = 256
	maxCredit             = 1 << 20
	defaultMaxMessageSize = 64 << 20
	defaultBatchSize      = 100
	defaultBatchWait      = 10 * time.Millisecond
	defaultRetryMin       = 100 * time.Millisecond
	defaultRetryMax       = 10 * time.Second
)

// kind is the kind of a subscription's handler.
type kind uint8

const (
	single kind = iota
	batch
	stream
)

func (o SubscribeOptions) withDefaults(k kind) (SubscribeOptions, []error) {
	var bad []error
	wrong := func(field string, err error) {
		bad = append(bad, &OptionError{Field: "SubscribeOptions." + field, Err: err})
	}
	if o.Credit == 0 {
		o.Credit = defaultCredit
	}
	if o.Credit < 1 || o.Credit > maxCredit {
		wrong("Credit", fmt.Errorf("%d is not from 1 to %d", o.Credit, maxCredit))
	}
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.Workers < 1 || o.Credit > 0 && o.Workers > o.Credit {
		wrong("Workers", fmt.Errorf("%d is not from 1 to the credit, %d", o.Workers, o.Credit))
	}
	if o.BatchSize == 0 {
		o.BatchSize = min(defaultBatchSize, max(o.Credit, 1))
	}
	if o.BatchSize < 1 || o.Credit > 0 && o.BatchSize > o.Credit {
		wrong("BatchSize", fmt.Errorf("%d is not from 1 to the credit, %d", o.BatchSize, o.Credit))
	}
	if o.BatchWait == 0 {
		o.BatchWait = defaultBatchWait
	}
	if o.BatchWait < 0 {
		wrong("BatchWait", fmt.Errorf("%v is negative", o.BatchWait))
	}
	if k == batch && o.PartitionBy != nil {
		wrong("PartitionBy", errors.New("goes with single deliveries, not with a batch"))
	}
	o.retries(k, wrong)
	if o.ReplyTo != "" {
		if _, err := o.ReplyTo.parse(); err != nil {
			wrong("ReplyTo", err)
		}
	}
	for i, m := range o.Middleware {
		if m == nil {
			wrong("Middleware", fmt.Errorf("number %d is nil", i))
		}
	}
	if o.HandlerTimeout < 0 {
		wrong("HandlerTimeout", fmt.Errorf("%v is negative", o.HandlerTimeout))
	}
	if o.MaxMessageSize == 0 {
		o.MaxMessageSize = defaultMaxMessageSize
	}
	if err := marshalable(o.LinkProperties); err != nil {
		wrong("LinkProperties", err)
	}
	return o, bad
}

// retries completes and checks what becomes of failures.
func (o *SubscribeOptions) retries(k kind, wrong func(field string, err error)) {
	if o.MaxAttempts < 0 {
		wrong("MaxAttempts", fmt.Errorf("%d is negative", o.MaxAttempts))
	}
	if o.RetryMin == 0 {
		o.RetryMin = defaultRetryMin
		if o.RetryMax > 0 {
			o.RetryMin = min(defaultRetryMin, o.RetryMax)
		}
	}
	if o.RetryMax == 0 {
		o.RetryMax = max(defaultRetryMax, o.RetryMin)
	}
	switch {
	case o.RetryMax < 0:
		wrong("RetryMax", fmt.Errorf("%v is negative", o.RetryMax))
	case o.RetryMin > o.RetryMax:
		wrong("RetryMin", fmt.Errorf("%v is above RetryMax, %v", o.RetryMin, o.RetryMax))
	}
	if o.OrderedRetry && (k != single || o.AtMostOnce || o.Workers > 1 && o.PartitionBy == nil) {
		wrong("OrderedRetry", errors.New("goes with one worker or PartitionBy, and with no batch, Stream or AtMostOnce"))
	}
	if o.DeadLetter != "" {
		if _, err := o.DeadLetter.parse(); err != nil {
			wrong("DeadLetter", err)
		}
	}
}
