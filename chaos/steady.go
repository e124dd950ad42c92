package main

import (
	"context"

	"github.com/amqpflow/amqpflow/amqptest"
)

var steady = scenario{
	name: "steady", about: "load without faults: publish and consume", faultless: true,
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		l := load{
			Messages: pick(b, 200_000, 5_000_000), Queues: 2, Mixed: true, HeapBound: 96 << 20,
		}
		return []*result{b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
			return b.trial(ctx, "steady", seed, p, l, nil, nil)
		})}
	},
}
