package amqpflow

import (
	"context"
	"time"
)

// grace is what each step behind the handlers gets beyond the caller's
// context. A handler, or an earlier step, that used all of the context then
// does not keep a willing peer from being told; all of them together stay
// under 100 ms.
const grace = 15 * time.Millisecond

// The steps behind the handlers.
const (
	stepDetach = iota
	stepEnd
	stepSenders
	stepPublisher
	stepClose
	stepAwait
	steps
)

// lateSteps bounds the steps behind the handlers: each ends a little later
// than the one before.
type lateSteps [steps]context.Context

func withGrace(ctx context.Context) (*lateSteps, context.CancelFunc) {
	var late lateSteps
	var cancels [steps]context.CancelFunc
	for i := range steps {
		late[i], cancels[i] = endingAfter(ctx, time.Duration(i+1)*grace)
		late[i] = lateContext{Context: late[i], caller: ctx}
	}
	return &late, func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}

// withinGrace returns a context that ends half a grace after ctx.
func withinGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	return endingAfter(ctx, grace/2)
}

// endingAfter returns a context that ends d after ctx has ended.
func endingAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() {
		stopped()
		cancel()
	}
}

// lateContext ends for the reason for which the caller's has ended.
type lateContext struct {
	context.Context
	caller context.Context
}

func (c lateContext) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	if err := c.caller.Err(); err != nil {
		return err
	}
	return c.Context.Err()
}
