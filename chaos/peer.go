package main

import (
	"context"
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
