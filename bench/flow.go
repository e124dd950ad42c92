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
	return serve(ctx, b, subscribe(b, p, s, m), m)
}

// subscribe registers the scenario's handler.
func subscribe(b *amqpflow.Broker, p place, s scenario, m *meter) *amqpflow.Subscription {
	options := &amqpflow.SubscribeOptions{Credit: s.credit, Workers: s.workers}
	switch {
	case s.json:
		return amqpflow.Subscribe(b, amqpflow.Queue(p.queue), func(_ context.Context, o *amqpflow.Message[order]) error {
			m.tick()
			return checkOrder(&o.Body)
		}, options)
	case s.batch > 0:
		options.BatchSize = s.batch
		return amqpflow.SubscribeBatch(b, amqpflow.Queue(p.queue), func(_ context.Context, os []*amqpflow.Message[[]byte]) error {
			for _, o := range os {
				m.tick()
				if err := checkSize(o.Body); err != nil {
					return err
				}
			}
			return nil
		}, options)
	case s.lanes > 0:
		options.Workers = s.lanes
		options.PartitionBy = func(d *amqpflow.Delivery) string { return string(d.Data()[:1]) }
	}
	return amqpflow.Subscribe(b, amqpflow.Queue(p.queue), func(_ context.Context, o *amqpflow.Message[[]byte]) error {
		m.tick()
		return checkSize(o.Body)
	}, options)
}

// serve runs the broker's subscription until the meter is done.
func serve(ctx context.Context, b *amqpflow.Broker, sub *amqpflow.Subscription, m *meter) error {
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

func (flowSide) pipeline(ctx context.Context, p place, s scenario, m *meter) error {
	b := amqpflow.New(p.url, &amqpflow.Options{TLS: p.tls, MaxInFlight: s.inFlight})
	if err := b.Connect(ctx); err != nil {
		return err
	}
	publisher, body, to := b.Publisher(), bytes.Repeat([]byte{'x'}, bodySize), amqpflow.Queue(p.queue)
	err := keepInFlight(s.warm+s.count, s.inFlight,
		func() (*amqpflow.Receipt, error) { return publisher.Send(ctx, to, body) },
		func(r *amqpflow.Receipt) error {
			if err := r.Wait(ctx); err != nil {
				return err
			}
			m.tick()
			return nil
		},
	)
	return errors.Join(err, b.Shutdown(ctx))
}

func (flowSide) reply(ctx context.Context, p place, s scenario, m *meter) error {
	b := amqpflow.New(p.url, &amqpflow.Options{TLS: p.tls})
	body := bytes.Repeat([]byte{'x'}, bodySize)
	sub := amqpflow.SubscribeReply(b, amqpflow.Queue(p.queue), func(_ context.Context, o *amqpflow.Message[[]byte]) ([]byte, error) {
		m.tick()
		return body, checkSize(o.Body)
	}, &amqpflow.SubscribeOptions{Credit: s.credit, Workers: s.workers})
	return serve(ctx, b, sub, m)
}
