package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow/amqptest"
)

var resetAtStep = scenario{
	name: "reset-at-step", about: "TCP reset at each of 25 protocol steps: before, within and behind its frame",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		var all []*result
		for round := range uint64(pick(b, 1, 20)) {
			for i, s := range steps {
				r := b.inProcess(amqptest.Options{}, func(p *inProcess) *result { return b.resetAt(ctx, seed+round*25+uint64(i), p, s) })
				for j := range r.breaches {
					r.breaches[j] = fmt.Sprintf("at %q: %s", s.name, r.breaches[j])
				}
				all = append(all, r)
			}
		}
		total := sum(all...)
		total.seed = seed
		return []*result{total}
	},
}

func (b *battery) resetAt(ctx context.Context, seed uint64, p peer, s step) *result {
	l := load{Messages: 300, Rate: 600, Senders: 1, Publishers: 1}
	var armed atomic.Bool
	prepare := func(t *trial) {
		place := seed % 3
		t.relay.born = func(p *pair) { p.place = int64(place) }
		t.relay.watch = func(_ *pair, f frame) bool {
			if !s.matches(f) || !armed.CompareAndSwap(true, false) {
				return false
			}
			t.fault()
			return true
		}
	}
	return b.trial(ctx, "reset-at-step", seed, p, l, prepare, func(ctx context.Context, t *trial) error {
		if !pause(ctx, 100*time.Millisecond) {
			return nil
		}
		armed.Store(true)
		if !s.stop {
			t.relay.cutAll() // most steps are those of a new connection
		}
		return nil
	})
}
