// Pipelined: many messages under way at once, in order, and the answer for
// each of them afterwards.
package main

import (
	"context"
	"fmt"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

const total = 1000

func main() { peer.Main(run, "events") }

func run(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL, &amqpflow.Options{MaxInFlight: 128}) // unconfirmed at a time, for each address
	if err := b.Connect(ctx); err != nil {
		return err
	}
	receipts, err := send(ctx, b.Publisher(), p.Queue("events"))
	if err != nil {
		return err
	}
	if err := b.Publisher().Flush(ctx); err != nil { // the outcome of each is known
		return err
	}
	confirmed := 0
	for _, receipt := range receipts {
		// A *PublishError is safe to send again; ErrUncertain may be stored.
		if err := receipt.Wait(ctx); err != nil {
			return err
		}
		confirmed++
	}
	fmt.Printf("%d sent, %d confirmed\n", len(receipts), confirmed)

	inOrder, err := read(ctx, b.Stream(p.Queue("events")))
	if err != nil {
		return err
	}
	fmt.Printf("%d read in order\n", inOrder)
	return b.Shutdown(ctx)
}

// send does not wait for the peer unless 128 are unconfirmed.
func send(ctx context.Context, to *amqpflow.Publisher, events amqpflow.Address) ([]*amqpflow.Receipt, error) {
	receipts := make([]*amqpflow.Receipt, 0, total)
	for event := range total {
		receipt, err := to.Send(ctx, events, event)
		if err != nil {
			return receipts, err
		}
		receipts = append(receipts, receipt)
	}
	return receipts, nil
}

func read(ctx context.Context, events *amqpflow.Stream) (inOrder int, err error) {
	for m, err := range amqpflow.Messages[int](ctx, events) {
		if err != nil || m.Body != inOrder {
			return inOrder, err
		}
		if err := m.Accept(ctx); err != nil {
			return inOrder, err
		}
		if inOrder++; inOrder == total {
			break
		}
	}
	return inOrder, nil
}
