// Package peer gives each example an AMQP 1.0 peer with queues of its own: a
// broker in memory, or the one whose URL is in AMQP_URL. An example is the
// same program on either, and leaves nothing behind.
package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// limit ends an example that would not end by itself, and cleanup bounds what
// follows.
const (
	limit   = time.Minute
	cleanup = 10 * time.Second
)

// Peer is what an example talks to.
type Peer struct {
	URL    string
	queues map[string]amqpflow.Address
	closed []func(context.Context) error
}

// Main runs an example with the named queues and exits with 1 if it fails.
func Main(run func(context.Context, *Peer) error, queues ...string) {
	if err := serve(run, queues); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Queue is the address of one of the queues that Main was given.
func (p *Peer) Queue(name string) amqpflow.Address {
	address, ok := p.queues[name]
	if !ok {
		panic("peer: Main was not given the queue " + name)
	}
	return address
}

func serve(run func(context.Context, *Peer) error, queues []string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	p := &Peer{URL: os.Getenv("AMQP_URL"), queues: make(map[string]amqpflow.Address)}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	if p.URL == "" {
		p.inMemory(queues)
	} else if err := p.onBroker(ctx, queues); err != nil {
		return fmt.Errorf("queues on the broker at AMQP_URL: %w", err)
	}
	return run(ctx, p)
}

// inMemory needs no declaring: a queue is there once somebody names it.
func (p *Peer) inMemory(queues []string) {
	server := amqptest.NewServer()
	p.closed = append(p.closed, func(context.Context) error { return server.Close() })
	p.URL = server.URL()
	for _, name := range queues {
		p.queues[name] = amqpflow.Queue(name)
	}
}

// onBroker declares queues under names that nobody else has.
func (p *Peer) onBroker(ctx context.Context, queues []string) error {
	m, err := dialManagement(ctx, p.URL)
	if err != nil {
		return err
	}
	p.closed = append(p.closed, m.close)
	for _, name := range queues {
		unique := "example-" + name + "-" + rand.Text()[:8]
		if err := m.declare(ctx, unique); err != nil {
			return err
		}
		p.closed = append(p.closed, func(ctx context.Context) error { return m.remove(ctx, unique) })
		p.queues[name] = amqpflow.Queue(unique)
	}
	return nil
}

// close undoes the latest first, also after an interrupt.
func (p *Peer) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(p.closed) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}
