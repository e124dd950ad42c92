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

// nothingFor is how long a queue has to bring nothing to count as empty: what a
// connection leaves unsettled goes back a little after its end. (Artemis does
// not answer go-amqp's drain of an empty queue.)
const nothingFor = 700 * time.Millisecond

// empty takes every message out of a queue.
func empty(ctx context.Context, session *amqp.Session, node string, caps []string) ([]*amqp.Message, error) {
	r, err := session.NewReceiver(ctx, node, &amqp.ReceiverOptions{Credit: 500, SourceCapabilities: caps})
	if err != nil {
		return nil, fmt.Errorf("empty %s: %w", node, err)
	}
	var all []*amqp.Message
	for {
		m, err := next(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("empty %s: %w", node, err)
		}
		if m == nil {
			return all, r.Close(ctx)
		}
		all = append(all, m)
		if err := r.AcceptMessage(ctx, m); err != nil {
			return nil, fmt.Errorf("empty %s: %w", node, err)
		}
	}
}

// next is the next message, nil if there is none for a while.
func next(ctx context.Context, r *amqp.Receiver) (*amqp.Message, error) {
	waiting, cancel := context.WithTimeout(ctx, nothingFor)
	defer cancel()
	m, err := r.Receive(waiting, nil)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil
	}
	return m, err
}
