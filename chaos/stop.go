package main

import (
	"context"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var stopping = scenario{
	name: "stop", about: "Shutdown while publishers publish and handlers run",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		return []*result{repeat(ctx, pick(b, 10, 200), seed, func(seed uint64) *result {
			l := load{
				Messages: 4000, Rate: 4000, Midway: true, Subscribe: amqpflow.SubscribeOptions{Workers: 16},
				Handle: func(ctx context.Context, _ *amqpflow.Delivery, _ call) error {
					pause(context.WithoutCancel(ctx), 2*time.Millisecond)
					return nil
				},
				Expect: func(_ *verdict, t *trial) { t.fault() },
			}
			return b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
				return b.trial(ctx, "stop", seed, p, l, nil, nil)
			})
		})}
	},
}
