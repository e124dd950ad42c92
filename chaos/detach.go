package main

import (
	"context"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var detach = scenario{
	name: "detach", about: "the links of one of four busy queues are detached by the broker, closing and not",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		cycles := pick(b, 200, 2000)
		l := load{Rate: 1000, Queues: 4, Expect: func(_ *verdict, t *trial) {
			t.oneConnection()
			t.linksBeyond(cycles)
		}}
		return []*result{b.inProcess(amqptest.Options{MaxDeliveries: -1}, func(p *inProcess) *result {
			return b.trial(ctx, "detach", seed, p, l, nil, func(ctx context.Context, t *trial) error {
				return t.blow(ctx, p, cycles, func(queue amqpflow.Address, n int) amqptest.Fault {
					if n%2 == 0 {
						return amqptest.Detach(queue, amqp.ErrCondDetachForced, "on purpose")
					}
					return amqptest.Suspend(queue, amqp.ErrCondInternalError, "on purpose")
				})
			})
		})}
	},
}

var endClose = scenario{
	name: "end-close", about: "the broker ends sessions, or closes the connection, with an error",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		l := load{Rate: 1000, Queues: 2}
		return []*result{b.inProcess(amqptest.Options{MaxDeliveries: -1}, func(p *inProcess) *result {
			return b.trial(ctx, "end-close", seed, p, l, nil, func(ctx context.Context, t *trial) error {
				return t.blow(ctx, p, pick(b, 50, 500), func(_ amqpflow.Address, n int) amqptest.Fault {
					if n%2 == 0 {
						return amqptest.End(amqp.ErrCondInternalError, "on purpose")
					}
					return amqptest.Close(amqp.ErrCondConnectionForced, "on purpose")
				})
			})
		})}
	},
}

// blow sets a fault going, waits until its queue works again, and so on.
func (t *trial) blow(ctx context.Context, p *inProcess, cycles int, fault func(queue amqpflow.Address, n int) amqptest.Fault) error {
	for n := range cycles {
		s := t.subscriber(n % t.load.Queues)
		before := s.times.Load()
		if err := p.server.Fault(fault(s.sub.Address(), n/t.load.Queues)); err != nil {
			return err
		}
		t.fault()
		for s.times.Load() == before {
			if !pause(ctx, time.Millisecond) {
				return ctx.Err()
			}
		}
		if err := t.handles(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// handles waits until a subscription's handler has been called.
func (t *trial) handles(ctx context.Context, s *subscriber) error {
	for before := s.calls.Load(); s.calls.Load() == before; {
		if !pause(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// subscriber is that of a queue.
func (t *trial) subscriber(queue int) *subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.subs {
		if s.sub.Address() == amqpflow.Queue(t.queue(queue)) {
			return s
		}
	}
	return nil
}

// linksBeyond expects that links were attached again as often as they were
// detached, and that no other was.
func (t *trial) linksBeyond(cycles int) {
	t.mu.Lock()
	links := 0
	for _, s := range t.subs {
		links += int(s.times.Load())
	}
	first := len(t.subs)
	t.mu.Unlock()
	if again := links - first; again != cycles {
		t.breach("links were attached again %d times, where %d were detached", again, cycles)
	}
}
