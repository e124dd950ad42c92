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

// with calls do with a session of a connection of its own, past every relay.
func (s *server) with(ctx context.Context, do func(*amqp.Session) error) error {
	conn, err := amqp.Dial(ctx, s.broker.url, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err == nil {
		err = do(session)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.name, err), conn.Close())
	}
	return conn.Close()
}

func (s *server) contents(ctx context.Context, queue string, l *ledger) (contents, error) {
	c := newContents()
	err := s.with(ctx, func(session *amqp.Session) error {
		ms, err := empty(ctx, session, s.node(queue), s.caps)
		if err != nil {
			return err
		}
		c.add(c.queued, l, ms)
		strangers := c.strangers // a dead-letter queue may be shared
		if ms, err = empty(ctx, session, s.node(s.dead(queue)), s.caps); err != nil {
			return err
		}
		c.add(c.dead, l, ms)
		c.strangers = strangers
		return nil
	})
	return c, err
}

// drained is how many drains in a row have to bring nothing: what a connection
// leaves unsettled goes back a little after its end.
const drained = 3

// empty takes every message out of a queue.
func empty(ctx context.Context, session *amqp.Session, node string, caps []string) ([]*amqp.Message, error) {
	const batch = 500
	r, err := session.NewReceiver(ctx, node, &amqp.ReceiverOptions{Credit: -1, SourceCapabilities: caps})
	if err != nil {
		return nil, fmt.Errorf("empty %s: %w", node, err)
	}
	var all []*amqp.Message
	for nothing := 0; nothing < drained; {
		if err := r.IssueCredit(batch); err != nil {
			return nil, fmt.Errorf("empty %s: %w", node, err)
		}
		if err := r.DrainCredit(ctx, nil); err != nil {
			return nil, fmt.Errorf("drain %s: %w", node, err)
		}
		before := len(all)
		for m := r.Prefetched(); m != nil; m = r.Prefetched() {
			all = append(all, m)
			if err := r.AcceptMessage(ctx, m); err != nil {
				return nil, fmt.Errorf("empty %s: %w", node, err)
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
