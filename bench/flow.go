package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
)

// flowSide is the same work with amqpflow.
type flowSide struct{}

func (flowSide) consume(ctx context.Context, p place, s scenario, m *meter) error {
	b := amqpflow.New(p.url, &amqpflow.Options{TLS: p.tls})
	options := &amqpflow.SubscribeOptions{Credit: s.credit}
	var sub *amqpflow.Subscription
	if s.json {
		sub = amqpflow.Subscribe(b, amqpflow.Queue(p.queue), func(_ context.Context, o *amqpflow.Message[order]) error {
			m.tick()
			return checkOrder(&o.Body)
		}, options)
	} else {
		sub = amqpflow.Subscribe(b, amqpflow.Queue(p.queue), func(_ context.Context, o *amqpflow.Message[[]byte]) error {
			m.tick()
			return checkSize(o.Body)
		}, options)
	}
	if err := b.Connect(ctx); err != nil {
		return err
	}
	var err error
	select {
	case <-m.done:
	case <-sub.Done(): // also when the connection ends
		err = fmt.Errorf("the subscription ended early: %w", sub.Err())
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, b.Shutdown(ctx))
}

func (flowSide) publish(ctx context.Context, p place, s scenario, m *meter) error {
	b := amqpflow.New(p.url, &amqpflow.Options{TLS: p.tls})
	if err := b.Connect(ctx); err != nil {
		return err
	}
	publisher, body := b.Publisher(), bytes.Repeat([]byte{'x'}, bodySize)
	for range s.warm + s.count {
		begun := time.Now()
		if err := publisher.Publish(ctx, amqpflow.Queue(p.queue), body); err != nil {
			return errors.Join(err, b.Shutdown(ctx))
		}
		m.time(begun)
	}
	return b.Shutdown(ctx)
}
