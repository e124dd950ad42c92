package main

import (
	"context"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var slow = scenario{
	name: "slow", about: "latency of 200 ± 100 ms, 64 KiB/s, slices of 1 to 7 bytes",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		l := load{
			Messages: pick(b, 5_000, 50_000), Senders: 3, Subscribe: amqpflow.SubscribeOptions{Credit: 1000}, Recovery: 5 * time.Second,
			Size: func(n int) int { return 16 + n%64 },
		}
		return []*result{b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
			return b.trialOver(ctx, "slow", seed, p, l, func(t *trial, x *proxy) error {
				t.relay.slices = true
				for _, stream := range []string{"upstream", "downstream"} {
					if err := x.poison("latency", stream, map[string]any{"latency": 200, "jitter": 100}); err != nil {
						return err
					}
					if err := x.poison("bandwidth", stream, map[string]any{"rate": 64}); err != nil {
						return err
					}
					t.fault()
				}
				return nil
			}, nil)
		})}
	},
}
