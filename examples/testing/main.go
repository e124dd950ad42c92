// Testing: a service whose constructor takes the broker, so that its test runs
// the same wiring on a broker in memory. See service_test.go.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

func main() { peer.Main(run, "orders", "invoices") }

func run(ctx context.Context, p *peer.Peer) error {
	for _, setting := range []struct{ name, queue string }{{"ORDERS", "orders"}, {"INVOICES", "invoices"}} {
		if err := os.Setenv(setting.name, string(p.Queue(setting.queue))); err != nil {
			return err
		}
	}
	b := amqpflow.New(p.URL)
	NewService(b)

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
