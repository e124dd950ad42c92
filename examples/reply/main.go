// Reply: a responder. It answers where the request says, under the request's
// correlation-id, and the request is accepted once the peer has the answer.
package main

import (
	"context"
	"fmt"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

type Basket struct {
	Prices []int `json:"prices"`
}

type Total struct {
	Cents int `json:"cents"`
}

// add knows nothing of addresses: a call of it is its test. Its error would be
// a retry of the request, and no reply.
func add(_ context.Context, m *amqpflow.Message[Basket]) (Total, error) {
	var t Total
	for _, price := range m.Body.Prices {
		t.Cents += price
	}
	return t, nil
}

func main() { peer.Main(run, "baskets", "totals") }

func run(ctx context.Context, p *peer.Peer) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	b := amqpflow.New(p.URL)
	amqpflow.SubscribeReply(b, p.Queue("baskets"), add)

	// The asking side; any AMQP 1.0 client could be it.
	answers := 0
	amqpflow.Subscribe(b, p.Queue("totals"), func(_ context.Context, m *amqpflow.Message[Total]) error {
		fmt.Printf("%s costs %d\n", m.CorrelationID(), m.Body.Cents)
		if answers++; answers == 2 {
			stop()
		}
		return nil
	})
	if err := b.Connect(ctx); err != nil {
		return err
	}
	for id, prices := range [][]int{{500, 250}, {1900}} {
		err := b.Publisher().Publish(ctx, p.Queue("baskets"), Basket{prices}, &amqpflow.PublishOptions{
			MessageID: fmt.Sprintf("basket %d", id+1), // the reply's correlation-id, unless CorrelationID is set
			ReplyTo:   p.Queue("totals"),
		})
		if err != nil {
			return err
		}
	}
	return b.Run(serving)
}
