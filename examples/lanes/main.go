// Lanes: many deliveries at once, and those of one key still in order.
package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

var accounts = []string{"ann", "ben", "cleo"}

const moves = 20 // of each account

func main() { peer.Main(run, "bookings") }

func run(ctx context.Context, p *peer.Peer) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()

	var (
		mu   sync.Mutex // the handler runs in eight lanes
		seen = make(map[string][]int)
		left atomic.Int64
	)
	left.Store(int64(len(accounts) * moves))

	b := amqpflow.New(p.URL)
	amqpflow.Subscribe(b, p.Queue("bookings"), func(_ context.Context, m *amqpflow.Message[int]) error {
		mu.Lock()
		seen[m.GroupID()] = append(seen[m.GroupID()], m.Body)
		mu.Unlock()
		if left.Add(-1) == 0 {
			stop()
		}
		return nil
	}, &amqpflow.SubscribeOptions{
		Workers:     8,                            // lanes
		PartitionBy: (*amqpflow.Delivery).GroupID, // one account, one lane
	})
	if err := b.Connect(ctx); err != nil {
		return err
	}

	for move := range moves {
		for _, account := range accounts {
			o := &amqpflow.PublishOptions{GroupID: account}
			if _, err := b.Publisher().Send(ctx, p.Queue("bookings"), move, o); err != nil {
				return err
			}
		}
	}
	if err := b.Run(serving); err != nil {
		return err
	}
	for _, account := range accounts {
		fmt.Printf("%s: %d bookings, in order: %t\n", account, len(seen[account]), slices.IsSorted(seen[account]))
	}
	return nil
}
