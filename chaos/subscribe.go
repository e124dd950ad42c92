package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow"
)

// subscriber is one subscription and the generations of its link.
type subscriber struct {
	sub     *amqpflow.Subscription
	link    atomic.Uint32 // generation: of all subscriptions together, another after each loss
	times   atomic.Int64  // it was attached
	calls   atomic.Int64  // of the handler
	unclean bool          // its last link did not end by a clean stop
}

var errOnPurpose = errors.New("on purpose")

func (t *trial) subscribe() {
	for q := range t.load.Queues {
		t.subscribeTo(q)
	}
}

func (t *trial) subscribeTo(queue int) {
	o := t.load.Subscribe
	s := &subscriber{}
	t.mu.Lock() // the observer waits until it knows whose link it is
	defer t.mu.Unlock()
	s.sub = t.register(amqpflow.Queue(t.queue(queue)), s, &o)
	t.subs[s.sub] = s
	t.all = append(t.all, s)
}

// register subscribes to what comes, or, with a codec, to what it can decode.
func (t *trial) register(queue amqpflow.Address, s *subscriber, o *amqpflow.SubscribeOptions) *amqpflow.Subscription {
	if t.load.Codec == nil {
		return t.broker.Subscribe(queue, func(ctx context.Context, d *amqpflow.Delivery) error {
			return t.handle(ctx, d, s)
		}, o)
	}
	o.Codec = t.load.Codec
	return amqpflow.Subscribe(t.broker, queue, func(ctx context.Context, m *amqpflow.Message[whole]) error {
		return t.handle(ctx, m.Delivery, s)
	}, o)
}

// handle enters the attempt and decides how it ends.
func (t *trial) handle(ctx context.Context, d *amqpflow.Delivery, s *subscriber) (err error) {
	publisher, seq, ok := t.ledger.parse(d.MessageID())
	if !ok {
		t.ledger.strangers.Add(1)
		return nil
	}
	number, ok := t.ledger.begin(publisher, seq, d, s.link.Load())
	if !ok {
		t.ledger.strangers.Add(1)
		return nil
	}
	s.calls.Add(1)
	t.recovery.handled(time.Now())
	if !intact(d.Data(), publisher, seq) {
		t.ledger.corrupt.Add(1)
	}
	returned := false
	defer func() { // a handler that panics ends, too
		if !returned {
			t.ledger.ended(publisher, seq, d, handsBack)
		}
	}()
	err = t.decide(ctx, d, call{publisher: publisher, seq: seq, attempt: number})
	returned = true
	t.ledger.ended(publisher, seq, d, endingOf(err))
	return err
}

func (t *trial) decide(ctx context.Context, d *amqpflow.Delivery, c call) error {
	if t.load.Handle != nil {
		return t.load.Handle(ctx, d, c)
	}
	if !t.load.Mixed || c.attempt > 3 {
		return nil
	}
	switch (c.seq*31 + c.publisher*17 + c.attempt + int(t.seed%97)) % 100 {
	case 0:
		return amqpflow.Retry(errOnPurpose)
	case 1:
		return amqpflow.Release()
	case 2:
		return fmt.Errorf("attempt %d: %w", c.attempt, errOnPurpose)
	}
	return nil
}

func endingOf(err error) ending {
	if err == nil {
		return accepts
	}
	switch amqpflow.OutcomeOf(err) {
	case amqpflow.Accepted:
		return accepts
	case amqpflow.Rejected:
		return rejects
	case amqpflow.OutcomeNone:
		return keeps
	default:
		return handsBack
	}
}

// observer watches the library from outside.
func (t *trial) observer() *amqpflow.Observer {
	return &amqpflow.Observer{
		Connection: func(up bool, err error) {
			if up {
				t.ups.Add(1)
				return
			}
			t.downs.Add(1)
			if err != nil {
				t.note("connection", err)
			}
		},
		State: func(s *amqpflow.Subscription, state amqpflow.State, _ error) {
			t.mu.Lock()
			sub := t.subs[s]
			t.mu.Unlock()
			t.observed(sub, state)
		},
		Settled: t.settled,
		Error:   func(err error) { t.note("error", err) },
	}
}

// observed follows a subscription; nil is none of the run's.
func (t *trial) observed(s *subscriber, state amqpflow.State) {
	switch {
	case s == nil:
	case state == amqpflow.Attaching: // told before the first delivery of the next link
		s.link.Store(t.links.Add(1))
		t.recovery.forget()
	case state == amqpflow.Attached:
		s.times.Add(1)
		t.recovery.attached(time.Now())
	default:
		t.recovery.forget()
	}
}

func (t *trial) settled(d *amqpflow.Delivery, _ amqpflow.Outcome, _ time.Duration, err error) {
	publisher, seq, ok := t.ledger.parse(d.MessageID())
	if !ok {
		return
	}
	lost, failed := errors.AsType[*amqpflow.SettleError](err)
	t.ledger.settled(publisher, seq, d, failed && lost != nil)
}
