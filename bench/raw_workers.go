package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/Azure/go-amqp"
)

// group is goroutines that end together: the first error ends the context of
// all.
type group struct {
	ctx     context.Context // of the group's life
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

func newGroup(ctx context.Context) *group {
	g := new(group)
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// start runs f in a goroutine that wait waits for.
func (g *group) start(f func(ctx context.Context) error) {
	g.running.Go(func() {
		if err := f(g.ctx); err != nil {
			g.cancel(err)
		}
	})
}

// wait returns the first error.
func (g *group) wait() error {
	g.running.Wait()
	defer g.cancel(nil)
	return context.Cause(g.ctx)
}

// share calls do for each of the scenario's messages, from as many goroutines
// as it has workers; from its own if that is one.
func share(ctx context.Context, s scenario, do func(ctx context.Context) error) error {
	total := int64(s.warm + s.count)
	var begun atomic.Int64
	loop := func(ctx context.Context) error {
		for begun.Add(1) <= total {
			if err := do(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if s.workers <= 1 {
		return loop(ctx)
	}
	g := newGroup(ctx)
	for range s.workers {
		g.start(loop)
	}
	return g.wait()
}

// receiveInLanes takes messages in one goroutine and uses and accepts them in
// one for each lane, those of one key in one lane.
func receiveInLanes(ctx context.Context, receiver *amqp.Receiver, s scenario, m *meter) error {
	g := newGroup(ctx)
	lanes := make([]chan *amqp.Message, s.lanes)
	for i := range lanes {
		lanes[i] = make(chan *amqp.Message, s.credit) // never full
		g.start(func(ctx context.Context) error {
			for msg := range lanes[i] {
				if err := useAndAccept(ctx, receiver, msg, s.json); err != nil {
					return err
				}
				m.tick()
			}
			return nil
		})
	}
	g.start(func(ctx context.Context) error {
		defer func() {
			for _, lane := range lanes {
				close(lane)
			}
		}()
		for range s.warm + s.count {
			msg, err := receiver.Receive(ctx, nil)
			if err != nil {
				return err
			}
			lanes[int(msg.GetData()[0])%len(lanes)] <- msg
		}
		return nil
	})
	return g.wait()
}

// receiveBatches takes s.batch messages, uses them all and accepts them all.
func receiveBatches(ctx context.Context, receiver *amqp.Receiver, s scenario, m *meter) error {
	batch := make([]*amqp.Message, 0, s.batch)
	for range s.warm + s.count {
		msg, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if batch = append(batch, msg); len(batch) < s.batch {
			continue
		}
		for _, msg := range batch {
			if err := use(msg.GetData(), s.json); err != nil {
				return err
			}
		}
		for _, msg := range batch {
			if err := receiver.AcceptMessage(ctx, msg); err != nil {
				return err
			}
			m.tick()
		}
		batch = batch[:0]
	}
	return nil
}
