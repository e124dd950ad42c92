// Batch: one database round trip for many messages, and an outcome of its own
// for the one that is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

type Reading struct {
	Sensor string  `json:"sensor"`
	Value  float64 `json:"value"`
}

// store writes what is plausible. Whatever it returns is the outcome of each
// reading that it has not marked.
func store(_ context.Context, ms []*amqpflow.Message[Reading]) error {
	rows := 0
	for _, m := range ms {
		if m.Body.Value < 0 {
			m.Mark(amqpflow.Reject(errors.New("below absolute zero")))
			continue
		}
		rows++
	}
	fmt.Printf("%d readings, %d rows\n", len(ms), rows)
	return nil // of the insert: an error would be a retry of all rows
}

func main() { peer.Main(run, "readings") }

func run(ctx context.Context, p *peer.Peer) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(map[amqpflow.Outcome]int) // by one goroutine: there is one worker
	b := amqpflow.New(p.URL, &amqpflow.Options{Observer: &amqpflow.Observer{
		Settled: func(_ *amqpflow.Delivery, outcome amqpflow.Outcome, _ time.Duration, _ error) {
			if ended[outcome]++; ended[amqpflow.Accepted]+ended[amqpflow.Rejected] == 8 {
				stop()
			}
		},
	}})
	amqpflow.SubscribeBatch(b, p.Queue("readings"), store, &amqpflow.SubscribeOptions{
		BatchSize: 4,
		BatchWait: 10 * time.Second, // so long would a batch of three wait for its fourth
	})
	if err := b.Connect(ctx); err != nil {
		return err
	}
	for i, value := range []float64{281, 282, -1, 283, 284, 285, 286, 287} {
		reading := Reading{Sensor: fmt.Sprint("s", i), Value: value}
		if _, err := b.Publisher().Send(ctx, p.Queue("readings"), reading); err != nil {
			return err
		}
	}
	if err := b.Run(serving); err != nil {
		return err
	}
	fmt.Printf("%d accepted, %d rejected\n", ended[amqpflow.Accepted], ended[amqpflow.Rejected])
	return nil
}
