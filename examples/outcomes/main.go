// Outcomes: what a handler returns decides what becomes of its delivery.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

// handle returns each outcome once. Nothing else about it knows of AMQP, so a
// unit test can ask amqpflow.OutcomeOf what an error of it means.
func handle() amqpflow.Handler[string] {
	busy := true
	return func(_ context.Context, m *amqpflow.Message[string]) error {
		switch {
		case m.Body == "flaky" && m.Attempt() == 1:
			return errors.New("the warehouse does not answer") // retried, and counted
		case m.Body == "busy" && busy:
			busy = false
			return amqpflow.Release() // given back, not counted
		case m.Body == "broken":
			return amqpflow.Reject(errors.New("no such item")) // never again: dead-lettered, if the broker is told to
		case m.Body == "bug":
			return &amqpflow.OutcomeError{ // the standard's own words, when none of the above fits
				Outcome: amqpflow.Rejected, Condition: "shop:unknown-customer", Description: "customer 7 left us",
			}
		}
		return nil // accepted
	}
}

func main() { peer.Main(run, "orders") }

func run(ctx context.Context, p *peer.Peer) error {
	settled := make(chan amqpflow.Outcome, 8) // an observer must not wait
	b := amqpflow.New(p.URL, &amqpflow.Options{Observer: &amqpflow.Observer{
		Settled: func(d *amqpflow.Delivery, outcome amqpflow.Outcome, _ time.Duration, _ error) {
			fmt.Printf("%-6s attempt %d: %v\n", d.Data(), d.Attempt(), outcome)
			settled <- outcome
		},
	}})
	amqpflow.Subscribe(b, p.Queue("orders"), handle())
	if err := b.Connect(ctx); err != nil {
		return err
	}

	for _, order := range []string{"good", "flaky", "busy", "broken", "bug"} {
		if err := b.Publisher().Publish(ctx, p.Queue("orders"), order); err != nil {
			return err
		}
		for gone := false; !gone; {
			select {
			case outcome := <-settled:
				gone = outcome == amqpflow.Accepted || outcome == amqpflow.Rejected
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return b.Shutdown(ctx)
}
