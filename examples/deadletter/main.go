// Dead letters: what fails three times, and what its handler gives up, is put
// aside with the reason, for somebody to look at.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

func transfer(_ context.Context, m *amqpflow.Message[string]) error {
	fmt.Printf("%s, attempt %d\n", m.Body, m.Attempt())
	switch m.Body {
	case "to nobody":
		return amqpflow.DeadLetter(errors.New("no such account")) // no attempt will help
	case "to the bank":
		return errors.New("the bank does not answer") // retried, and put aside after MaxAttempts
	}
	return nil
}

func main() { peer.Main(run, "transfers", "dead") }

func run(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL)
	amqpflow.Subscribe(b, p.Queue("transfers"), transfer, &amqpflow.SubscribeOptions{
		MaxAttempts: 3, DeadLetter: p.Queue("dead"), RetryMax: 10 * time.Millisecond,
	})
	letters := b.Stream(p.Queue("dead"))
	if err := b.Connect(ctx); err != nil {
		return err
	}
	for _, what := range []string{"to ann", "to nobody", "to the bank"} {
		if err := b.Publisher().Publish(ctx, p.Queue("transfers"), what); err != nil {
			return err
		}
	}
	var aside []string
	for len(aside) < 2 {
		letter, err := next(ctx, letters)
		if err != nil {
			return err
		}
		aside = append(aside, letter)
	}
	for _, letter := range aside {
		fmt.Println(letter)
	}
	return b.Shutdown(ctx)
}

// next reads a dead letter: the message as it was, and why it is here.
func next(ctx context.Context, letters *amqpflow.Stream) (string, error) {
	for m, err := range amqpflow.Messages[string](ctx, letters) {
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("put aside: %q, attempts: %v, %v: %v", m.Body, m.Header("dead-letter-attempts"),
			m.Header("dead-letter-reason"), m.Header("dead-letter-description")), m.Accept(ctx)
	}
	return "", ctx.Err()
}
