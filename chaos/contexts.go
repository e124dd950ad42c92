package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var contexts = scenario{
	name: "contexts", about: "publish and settle with 0 to 2 ms of time, bodies of up to 200 KiB",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		const hurry = 2 * time.Millisecond
		return []*result{b.inProcess(amqptest.Options{MaxDeliveries: -1}, func(p *inProcess) *result {
			l := load{
				Messages: pick(b, 20_000, 200_000), Queues: 2, Senders: 4, Publishers: 4, Hurry: hurry, HeapBound: 256 << 20,
				Size: func(n int) int { return bodySizes[n%len(bodySizes)] },
				Handle: func(_ context.Context, d *amqpflow.Delivery, _ call) error {
					settling, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(hurry))))
					defer cancel()
					_ = d.Accept(settling) // what it could not do, the return value does
					return nil
				},
				Expect: func(v *verdict, t *trial) {
					t.oneConnection()
					t.faults.Add(int64(v.notSent + v.uncertain)) // contexts that have ended
				},
			}
			return b.trial(ctx, "contexts", seed, p, l, nil, nil)
		})}
	},
}

var bodySizes = [...]int{16, 300, 2_000, 300, 40_000, 1_000, 300, 200 << 10, 16, 9_000}
