// Testing: a service whose wiring is a function, so that its test runs the
// same wiring on a broker in memory. See service_test.go.
package main

import (
	"context"
	"fmt"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

func main() { peer.Main(run, "orders", "invoices") }

func run(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL)
	Register(b, p.Queue("orders"), p.Queue("invoices"), map[string]int{"lamp": 1900})

	serving, stop := context.WithCancel(ctx)
	defer stop()
	amqpflow.Subscribe(b, p.Queue("invoices"), func(_ context.Context, m *amqpflow.Message[Invoice]) error {
		fmt.Printf("an invoice over %d for order %s\n", m.Body.Total, m.Body.Order)
		stop()
		return nil
	})

	if err := b.Connect(ctx); err != nil {
		return err
	}
	if err := b.Publisher().Publish(ctx, p.Queue("orders"), Order{ID: "A-1", Item: "lamp", Count: 3}); err != nil {
		return err
	}
	return b.Run(serving)
}
