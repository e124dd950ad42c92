package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// peer is a broker that runs are made against.
type peer interface {
	product() string
	url() string
	create(ctx context.Context, queue string) error
	remove(ctx context.Context, queue string) error
	// contents takes everything out of the queue and its dead-letter queue.
	contents(ctx context.Context, queue string, l *ledger) (contents, error)
	// settlements is how often each message of the queue was accepted, where
	// the broker tells; nil where not.
	settlements(queue string) map[string]int
	close() error
}

// inProcess is amqptest on a loopback port.
type inProcess struct{ server *amqptest.Server }

func newInProcess(opts amqptest.Options) *inProcess {
	return &inProcess{server: amqptest.NewServer(&opts)}
}

func (p *inProcess) product() string                      { return "amqptest" }
func (p *inProcess) url() string                          { return p.server.URL() }
func (p *inProcess) create(context.Context, string) error { return nil }
func (p *inProcess) remove(context.Context, string) error { return nil }
func (p *inProcess) close() error                         { return p.server.Close() }
func (p *inProcess) settlements(queue string) map[string]int {
	accepted := map[string]int{}
	for _, s := range p.server.Settlements(amqpflow.Queue(queue)) {
		if s.Outcome == amqpflow.Accepted {
			accepted[s.MessageID]++
		}
	}
	return accepted
}

func (p *inProcess) contents(_ context.Context, queue string, l *ledger) (contents, error) {
	c := newContents()
	c.add(c.queued, l, p.server.Messages(amqpflow.Queue(queue)))
	c.add(c.dead, l, p.server.DeadLetters(amqpflow.Queue(queue)))
	return c, nil
}

func newContents() contents {
	return contents{queued: map[string]int{}, dead: map[string]int{}}
}

func (c *contents) add(to map[string]int, l *ledger, ms []*amqp.Message) {
	for _, m := range ms {
		var id string
		if m.Properties != nil {
			id, _ = m.Properties.MessageID.(string)
		}
		if _, _, ok := l.parse(id); ok {
			to[id]++
		} else {
			c.strangers++
		}
	}
}

// server is a real broker, which belongs to the battery: its queues are made,
// emptied and removed, and it may be killed.
type server struct {
	name             string
	at               string
	kind             queueKind
	made             func(ctx context.Context, s *server, queue string) error
	unmk             func(ctx context.Context, s *server, queue string) error
	node             func(queue string) string
	caps             []string
	dead             func(queue string) string // its dead-letter queue; "" if there is none
	start, kill, ctl command
}

// queueKind is RabbitMQ's type of queue.
type queueKind string

func (s *server) product() string                   { return s.name }
func (s *server) url() string                       { return s.at }
func (s *server) settlements(string) map[string]int { return nil }
func (s *server) close() error                      { return nil }

func (s *server) create(ctx context.Context, queue string) error { return s.made(ctx, s, queue) }
func (s *server) remove(ctx context.Context, queue string) error { return s.unmk(ctx, s, queue) }

// dial opens a connection and a session past every relay.
func (s *server) dial(ctx context.Context) (*amqp.Conn, *amqp.Session, error) {
	conn, err := amqp.Dial(ctx, s.at, nil)
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

// pause waits for d; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
