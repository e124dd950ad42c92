// Middleware: what every handler and every publish has in common, written
// once. Here a request id that travels with every message, from a delivery to
// what its handler publishes, and a line for each call of one handler.
package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

const header = "request-id"

type requestID struct{}

// remember puts the delivery's request id into the handler's context.
func remember(next amqpflow.CallFunc) amqpflow.CallFunc {
	return func(ctx context.Context, c *amqpflow.Call) error {
		id, _ := c.Deliveries[0].Header(header).(string)
		return next(context.WithValue(ctx, requestID{}, id), c)
	}
}

// trace says what a handler made of its delivery, by the error that it returned.
func trace(next amqpflow.CallFunc) amqpflow.CallFunc {
	return func(ctx context.Context, c *amqpflow.Call) error {
		err := next(ctx, c)
		fmt.Printf("%s handled: %v\n", ctx.Value(requestID{}), amqpflow.OutcomeOf(err))
		return err
	}
}

// forward writes the id of ctx into every message that is published under it.
func forward(next amqpflow.PublishFunc) amqpflow.PublishFunc {
	return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
		if id, ok := ctx.Value(requestID{}).(string); ok {
			m.ApplicationProperties = map[string]any{header: id}
		}
		return next(ctx, addr, m)
	}
}

func main() { peer.Main(run, "orders", "parcels") }

func run(ctx context.Context, p *peer.Peer) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	b := amqpflow.New(p.URL, &amqpflow.Options{
		Middleware:        []amqpflow.Middleware{remember}, // around every handler
		PublishMiddleware: []amqpflow.PublishMiddleware{forward},
	})
	amqpflow.Subscribe(b, p.Queue("orders"), func(ctx context.Context, m *amqpflow.Message[string]) error {
		fmt.Println("packing a", m.Body)
		return b.Publisher().Publish(ctx, p.Queue("parcels"), "a box with a "+m.Body)
	})
	amqpflow.Subscribe(b, p.Queue("parcels"), func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println("shipping", m.Body)
		stop()
		return nil
	}, &amqpflow.SubscribeOptions{Middleware: []amqpflow.Middleware{trace}}) // inside the broker's
	if err := b.Connect(ctx); err != nil {
		return err
	}
	outside := context.WithValue(ctx, requestID{}, "r-17") // an HTTP server would do this
	if err := b.Publisher().Publish(outside, p.Queue("orders"), "lamp"); err != nil {
		return err
	}
	return b.Run(serving)
}
