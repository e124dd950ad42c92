package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// server is a real broker, which belongs to the battery: its queues are made,
// emptied and removed, and it may be killed.
type server struct {
	broker

	name     string
	kind     queueKind
	limit    int // messages in a queue, before it refuses; 0: none
	making   func(ctx context.Context, s *server, queue string) error
	removing func(ctx context.Context, s *server, queue string) error
	node     func(queue string) string // its address on the wire
	caps     []string                  // of a terminus on it
	dead     func(queue string) string // its dead-letter queue
}

// queueKind is RabbitMQ's type of queue.
type queueKind string

func (s *server) product() string                   { return s.name }
func (s *server) url() string                       { return s.broker.url }
func (s *server) settlements(string) map[string]int { return nil }
func (s *server) close() error                      { return nil }

func (s *server) create(ctx context.Context, queue string) error { return s.making(ctx, s, queue) }
func (s *server) remove(ctx context.Context, queue string) error { return s.removing(ctx, s, queue) }

// dial opens a connection and a session past every relay.
func (s *server) dial(ctx context.Context) (*amqp.Conn, *amqp.Session, error) {
	conn, err := amqp.Dial(ctx, s.broker.url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", s.name, err), conn.Close())
	}
	return conn, session, nil
}

func (s *server) contents(ctx context.Context, queue string, l *ledger) (contents, error) {
	c := newContents()
	conn, session, err := s.dial(ctx)
	if err != nil {
		return c, err
	}
	defer conn.Close()
	ms, err := s.empty(ctx, session, queue)
	if err != nil {
		return c, err
	}
	c.add(c.queued, l, ms)
	if dead := s.dead(queue); dead != "" {
		if ms, err = s.empty(ctx, session, dead); err != nil {
			return c, err
		}
		strangers := c.strangers // a dead-letter queue may be shared
		c.add(c.dead, l, ms)
		c.strangers = strangers
	}
	return c, nil
}

// drained is how many drains in a row have to bring nothing: what a connection
// leaves unsettled goes back a little after its end.
const drained = 3

// empty takes every message out of a queue.
func (s *server) empty(ctx context.Context, session *amqp.Session, queue string) ([]*amqp.Message, error) {
	const batch = 500
	r, err := session.NewReceiver(ctx, s.node(queue), &amqp.ReceiverOptions{Credit: -1, SourceCapabilities: s.caps})
	if err != nil {
		return nil, fmt.Errorf("%s: empty %s: %w", s.name, queue, err)
	}
	var all []*amqp.Message
	for nothing := 0; nothing < drained; {
		if err := r.IssueCredit(batch); err != nil {
			return nil, fmt.Errorf("%s: empty %s: %w", s.name, queue, err)
		}
		if err := r.DrainCredit(ctx, nil); err != nil {
			return nil, fmt.Errorf("%s: drain %s: %w", s.name, queue, err)
		}
		before := len(all)
		for m := r.Prefetched(); m != nil; m = r.Prefetched() {
			all = append(all, m)
			if err := r.AcceptMessage(ctx, m); err != nil {
				return nil, fmt.Errorf("%s: empty %s: %w", s.name, queue, err)
			}
		}
		if len(all) > before {
			nothing = 0
			continue
		}
		nothing++
		if !pause(ctx, 150*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	return all, r.Close(ctx)
}
