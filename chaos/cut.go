package main

import (
	"context"
	"time"

	"github.com/amqpflow/amqpflow/amqptest"
)

var randomCut = scenario{
	name: "random-cut", about: "every connection dies after 0.5 to 1.5 s, at a random byte",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		return []*result{repeat(ctx, pick(b, 5, 50), seed, func(seed uint64) *result {
			l := load{
				Messages: pick(b, 20_000, 100_000), Rate: pick(b, 4_000, 8_000), Mixed: true, Midway: seed%3 == 0,
			}
			return b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
				return b.trial(ctx, "random-cut", seed, p, l, nil, cutEach)
			})
		})}
	},
}

// cutEach resets the connections that there are, again and again, wherever the
// stream stands.
func cutEach(ctx context.Context, t *trial) error {
	for pause(ctx, t.between(500*time.Millisecond, 1500*time.Millisecond)) {
		for range t.relay.cutAll() {
			t.fault()
		}
	}
	return nil
}
