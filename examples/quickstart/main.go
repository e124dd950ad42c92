// Quickstart: a handler, a message, and a clean end.
package main

import (
	"context"
	"fmt"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// The peer is a broker in memory, or the one whose URL is in AMQP_URL.
func main() { peer.Main(run, "orders") }

func run(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL)
	orders := p.Queue("orders")
	serving, stop := context.WithCancel(ctx)
	defer stop()

	amqpflow.Subscribe(b, orders, func(_ context.Context, m *amqpflow.Message[Order]) error {
		fmt.Printf("shipping %d × %s\n", m.Body.Count, m.Body.Item)
		stop()     // a service would go on until it is interrupted
		return nil // accepted: the queue is rid of it
	})

	if err := b.Connect(ctx); err != nil {
		return err
	}
	fmt.Println("ordering 3 × lamp")
	if err := b.Publisher().Publish(ctx, orders, Order{Item: "lamp", Count: 3}); err != nil {
		return err
	}
	if err := b.Run(serving); err != nil { // until serving ends, then drains
		return err
	}
	fmt.Println("stopped, nothing left behind")
	return nil
}
