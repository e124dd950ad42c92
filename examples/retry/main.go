// Retry: a payment fails because the bank does not answer. It waits for its
// turn to come again, holds nobody up, and the broker has it all the time.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

var errNoAnswer = errors.New("the bank does not answer")

// pay fails for what goes abroad, until the third attempt.
func pay(_ context.Context, m *amqpflow.Message[string]) error {
	switch {
	case m.Body != "abroad" || m.Attempt() > 2:
		fmt.Printf("%s: paid at attempt %d\n", m.Body, m.Attempt())
		return nil
	case m.Attempt() == 1:
		fmt.Printf("%s: %v, in a second\n", m.Body, errNoAnswer)
		return amqpflow.RetryAfter(time.Second, errNoAnswer) // held for as long as the handler says
	default:
		fmt.Printf("%s: %v\n", m.Body, errNoAnswer)
		return errNoAnswer // or for the backoff: up to RetryMin, doubled with each attempt, up to RetryMax
	}
}

func main() { peer.Main(run, "payments") }

func run(ctx context.Context, p *peer.Peer) error {
	accepted := make(chan struct{}, 4) // an observer must not wait
	b := amqpflow.New(p.URL, &amqpflow.Options{Observer: &amqpflow.Observer{
		Settled: func(_ *amqpflow.Delivery, outcome amqpflow.Outcome, _ time.Duration, _ error) {
			if outcome == amqpflow.Accepted {
				accepted <- struct{}{}
			}
		},
	}})
	payments := amqpflow.Subscribe(b, p.Queue("payments"), pay, &amqpflow.SubscribeOptions{
		RetryMin: 50 * time.Millisecond, RetryMax: time.Minute,
	})
	if err := b.Connect(ctx); err != nil {
		return err
	}
	for _, payment := range []string{"abroad", "rent", "wages"} {
		if err := b.Publisher().Publish(ctx, p.Queue("payments"), payment); err != nil {
			return err
		}
	}
	for i := range 3 {
		select {
		case <-accepted:
		case <-ctx.Done():
			return ctx.Err()
		}
		if i == 1 {
			fmt.Println("two are paid, held meanwhile:", payments.Stats().Retrying)
		}
	}
	return b.Shutdown(ctx)
}
