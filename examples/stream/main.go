// Stream: a loop instead of a handler, for a program that takes messages when
// it wants them and settles them itself.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

type Line struct {
	Text string `json:"text"`
}

func main() { peer.Main(run, "lines") }

func run(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL)
	lines := b.Stream(p.Queue("lines"), &amqpflow.SubscribeOptions{Credit: 10})
	if err := b.Connect(ctx); err != nil {
		return err
	}
	for _, v := range []any{Line{"one"}, "no line", Line{"two"}, Line{"the end"}, Line{"never read"}} {
		if err := b.Publisher().Publish(ctx, p.Queue("lines"), v); err != nil {
			return err
		}
	}

	// Up to ten lines are fetched ahead; the eleventh waits for a settlement.
	for m, err := range amqpflow.Messages[Line](ctx, lines) {
		if m == nil {
			return err // the stream ended: nil after ctx or Shutdown
		}
		if _, ok := errors.AsType[*amqpflow.DecodeError](err); ok {
			fmt.Printf("%s: rejected\n", m.Data()) // settled already
			continue
		}
		fmt.Println(m.Body.Text)
		if err := m.Accept(ctx); err != nil {
			return err
		}
		if m.Body.Text == "the end" {
			break // the link stays; another loop would go on from here
		}
	}
	return b.Shutdown(ctx) // what was fetched and not read goes back
}
