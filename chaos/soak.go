package main

import (
	"context"
	"time"

	"github.com/amqpflow/amqpflow/amqptest"
)

var soak = scenario{
	name: "soak", about: "200 messages a second, with a drop every 20 s",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		lasting := or(b.soak, pick(b, time.Minute, time.Hour))
		return []*result{b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
			return b.trial(ctx, "soak", seed, p, load{Rate: 200, Mixed: true, HeapBound: 24 << 20}, nil, func(ctx context.Context, t *trial) error {
				const every = 20 * time.Second
				for end := time.Now().Add(lasting); time.Until(end) > every && pause(ctx, every); {
					if err := p.server.Fault(amqptest.Drop()); err != nil {
						return err
					}
					t.fault()
				}
				pause(ctx, every/2)
				return nil
			})
		})}
	},
}
