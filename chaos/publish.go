package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow"
)

// inFlight is how many Sends of one publisher wait for their outcome.
const inFlight = 128

// publish is one publisher: messages of its own, to one queue, until there are
// enough of all publishers or ctx ends.
func (t *trial) publish(ctx context.Context, publisher int) {
	queue := amqpflow.Queue(t.queue(publisher % t.load.Queues))
	every := t.load.interval()
	pipelined := publisher/t.load.Queues < t.load.Senders
	rng := rand.New(rand.NewPCG(t.seed, uint64(publisher)))
	next := time.Now()
	receipts := make(chan sent, inFlight)
	var collector sync.WaitGroup
	if pipelined {
		collector.Go(func() { t.collect(publisher, receipts) })
	}
	for t.more() && ctx.Err() == nil {
		if every > 0 {
			next = next.Add(every)
			if !pause(ctx, time.Until(next)) {
				break
			}
		}
		seq := t.ledger.publish(publisher)
		m := message{queue: queue, publisher: publisher, seq: seq, value: t.value(publisher, seq), patience: t.patience(rng)}
		if pipelined {
			t.send(m, receipts)
		} else {
			t.publishOne(m)
		}
	}
	close(receipts)
	collector.Wait()
}

// more takes one message out of what is to be published.
func (t *trial) more() bool {
	return t.load.Messages == 0 || t.begun.Add(1) <= int64(t.load.Messages)
}

type sent struct {
	seq     int
	receipt *amqpflow.Receipt
}

// message is one publish.
type message struct {
	queue          amqpflow.Address
	publisher, seq int
	value          any
	patience       time.Duration
}

func (t *trial) value(publisher, seq int) any {
	if t.load.Value != nil {
		if v := t.load.Value(publisher, seq); v != nil {
			return v
		}
	}
	return body(publisher, seq, t.load.Size(seq))
}

func (t *trial) patience(rng *rand.Rand) time.Duration {
	if t.load.Hurry > 0 {
		return time.Duration(rng.Int64N(int64(t.load.Hurry)))
	}
	return t.load.Patience
}

func (t *trial) options(m message) *amqpflow.PublishOptions {
	return &amqpflow.PublishOptions{MessageID: t.ledger.id(m.publisher, m.seq)}
}

// publishOne's context is not the run's: a publish outlives the faults.
func (t *trial) publishOne(m message) {
	deadline := time.Now().Add(m.patience)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	err := t.broker.Publisher().Publish(ctx, m.queue, m.value, t.options(m))
	t.prompt.returned("Publish", deadline)
	t.answer(m.publisher, m.seq, err)
	breathe(err)
}

func (t *trial) send(m message, receipts chan<- sent) {
	deadline := time.Now().Add(m.patience)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	receipt, err := t.broker.Publisher().Send(ctx, m.queue, m.value, t.options(m))
	t.prompt.returned("Send", deadline)
	if receipt == nil {
		t.answer(m.publisher, m.seq, err)
		breathe(err)
		return
	}
	receipts <- sent{seq: m.seq, receipt: receipt}
}

// breathe keeps a publisher that is told at once that there is no connection
// from asking again at once.
func breathe(err error) {
	if errors.Is(err, amqpflow.ErrNotConnected) {
		pause(context.Background(), 10*time.Millisecond)
	}
}

// collect waits for the outcomes of a publisher's Sends.
func (t *trial) collect(publisher int, receipts <-chan sent) {
	for s := range receipts {
		<-s.receipt.Done()
		err := s.receipt.Wait(context.Background())
		if again := s.receipt.Wait(context.Background()); classOf(err) != classOf(again) {
			t.breach("publish %d/%d was answered twice: %v, then %v", publisher, s.seq, err, again)
		}
		t.answer(publisher, s.seq, err)
	}
}

// answer enters what a publish returned.
func (t *trial) answer(publisher, seq int, err error) {
	class := classOf(err)
	if class == Unanswered {
		t.breach("publish %d/%d: an answer of no kind: %v", publisher, seq, err)
	}
	if err != nil && errors.Is(err, amqpflow.ErrUncertain) && errors.Is(err, amqpflow.ErrNotSent) {
		t.breach("publish %d/%d: an answer of two kinds: %v", publisher, seq, err)
	}
	t.ledger.answered(publisher, seq, class)
	if err != nil {
		t.note("publish", err)
	}
}

// classOf is the kind of answer that an error is; Unanswered for one that is
// none.
func classOf(err error) Answer {
	switch {
	case err == nil:
		return Confirmed
	case errors.Is(err, amqpflow.ErrUncertain):
		return Uncertain
	case errors.Is(err, amqpflow.ErrNotSent), errors.Is(err, amqpflow.ErrNotConnected):
		return NotSent
	}
	if refused, ok := errors.AsType[*amqpflow.PublishError](err); ok {
		if refused.Outcome != amqpflow.OutcomeNone {
			return Refused
		}
		return NotSent
	}
	return Unanswered
}

// note counts an error by its kind, for the report of a run that fails.
func (t *trial) note(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.noted) < 40 {
		t.noted[fmt.Sprintf("%s: %v", what, err)]++
	}
}
