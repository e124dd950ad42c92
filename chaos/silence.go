package main

import (
	"context"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var silence = scenario{
	name: "silence", about: "nothing arrives, in both directions or in one, under load and idle",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		return []*result{repeat(ctx, pick(b, 3, 30), seed, func(seed uint64) *result {
			kind := quiets[int(seed-1)%len(quiets)]
			r := b.inProcessBut("idle-timeout", amqptest.Options{IdleTimeout: silentFor}, func(p *inProcess) *result {
				l := load{
					Rate: kind.rate, Options: amqpflow.Options{IdleTimeout: silentFor}, Subscribe: amqpflow.SubscribeOptions{Credit: 50},
				}
				return b.trialOver(ctx, "silence", seed, p, l, nil, kind.inject)
			})
			for i := range r.breaches {
				r.breaches[i] = kind.name + ": " + r.breaches[i]
			}
			return r
		})}
	},
}

const silentFor = time.Second

// quiet is one kind of silence.
type quiet struct {
	name    string
	rate    int
	streams []string
}

var quiets = []quiet{
	{name: "both directions under load", rate: 1000, streams: []string{"upstream", "downstream"}},
	{name: "to the client under load", rate: 1000, streams: []string{"downstream"}},
	{name: "both directions idle", rate: 2, streams: []string{"upstream", "downstream"}},
	{name: "to the broker under load", rate: 1000, streams: []string{"upstream"}},
	{name: "to the client idle", rate: 2, streams: []string{"downstream"}},
	{name: "to the broker idle", rate: 2, streams: []string{"upstream"}},
}

// inject lets nothing through until the loss was noticed, and a while longer.
func (q quiet) inject(ctx context.Context, t *trial, x *proxy) error {
	if !pause(ctx, t.between(time.Second, 2*time.Second)) {
		return nil
	}
	if err := t.outage(ctx, func(ctx context.Context) error {
		downs := t.downs.Load()
		began := time.Now()
		for _, stream := range q.streams {
			if err := x.poison("timeout", stream, map[string]any{"timeout": 0}); err != nil {
				return err
			}
		}
		t.fault()
		for t.downs.Load() == downs {
			if !pause(ctx, time.Millisecond) {
				return fmt.Errorf("%s: the loss was not noticed: %w", q.name, ctx.Err())
			}
		}
		// The last sign of life came at the latest when the silence began.
		if took := time.Since(began); took > silentFor+silentFor/10+t.prompt.canary.lateBetween(began, time.Now()) {
			t.breach("the silence was noticed after %v", took)
		}
		pause(ctx, t.between(time.Second, 3*time.Second))
		for _, stream := range q.streams {
			if err := x.cure(ctx, "timeout", stream); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return t.flowing(ctx)
}
