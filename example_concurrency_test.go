package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// How do I handle several messages at once?
func ExampleSubscribeOptions_workers() {
	var together sync.WaitGroup
	together.Add(3)
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error {
		together.Done()
		together.Wait() // none of the three returns before all have begun
		return nil
	}, &amqpflow.SubscribeOptions{Workers: 3}) // in no particular order
	run(b, "lamp", "desk", "sofa")
	fmt.Println("all three at once")
	// Output: all three at once
}

// How do I handle several messages at once and keep those of one customer in
// order?
func ExampleSubscribeOptions_partitionBy() {
	var mu sync.Mutex
	seen := make(map[string][]string)
	b := amqpflow.New("amqp://localhost:5672")
	b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		customer := d.Data()[:3]
		seen[string(customer)] = append(seen[string(customer)], string(d.Data()))
		return nil
	}, &amqpflow.SubscribeOptions{
		Workers:     8, // lanes
		PartitionBy: func(d *amqpflow.Delivery) string { return string(d.Data()[:3]) },
	})
	run(b, "ann 1", "ben 1", "ann 2", "ann 3", "ben 2")
	fmt.Println(seen["ann"])
	fmt.Println(seen["ben"])
	// Output:
	// [ann 1 ann 2 ann 3]
	// [ben 1 ben 2]
}

// How do I handle many messages in one go?
func ExampleSubscribeBatch() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.SubscribeBatch(b, "orders", func(_ context.Context, ms []*amqpflow.Message[Order]) error {
		fmt.Println("inserting", len(ms), "rows")
		return nil // all accepted; an error would be a retry of all
	}, &amqpflow.SubscribeOptions{BatchSize: 3, BatchWait: time.Second})
	run(b, `{"item": "lamp"}`, `{"item": "desk"}`, `{"item": "sofa"}`)
	// Output: inserting 3 rows
}

// How do I give one message of a batch another outcome?
func ExampleDelivery_Mark() {
	b := amqpflow.New("amqp://localhost:5672", &amqpflow.Options{Observer: &amqpflow.Observer{
		Settled: func(d *amqpflow.Delivery, outcome amqpflow.Outcome, _ time.Duration, _ error) {
			fmt.Printf("%s %v\n", d.Data(), outcome)
		},
	}})
	amqpflow.SubscribeBatch(b, "orders", func(_ context.Context, ms []*amqpflow.Message[string]) error {
		for _, m := range ms {
			if m.Body == "unicorn" {
				m.Mark(amqpflow.Reject(errors.New("no such animal")))
			}
		}
		return nil // for those that are not marked
	}, &amqpflow.SubscribeOptions{BatchSize: 3, BatchWait: time.Second})
	run(b, "lamp", "unicorn", "desk")
	// Unordered output:
	// lamp accepted
	// unicorn rejected
	// desk accepted
}

// How do I answer requests?
func ExampleSubscribeReply() {
	ctx := context.Background()
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.SubscribeReply(b, "prices", func(_ context.Context, m *amqpflow.Message[Order]) (int, error) {
		return m.Body.Count * 1900, nil // an error: no reply, and the request is retried
	})
	amqpflow.Subscribe(b, "answers", func(_ context.Context, m *amqpflow.Message[int]) error {
		fmt.Println(m.CorrelationID(), "costs", m.Body)
		return nil
	})
	server := amqptest.NewServer()
	must(server.Connect(ctx, b))
	must(b.Publisher().Publish(ctx, "prices", Order{Item: "lamp", Count: 3}, &amqpflow.PublishOptions{
		ReplyTo: "answers", CorrelationID: "basket 7",
	}))
	must(server.Idle(ctx))
	must(b.Shutdown(ctx))
	must(server.Close())
	// Output: basket 7 costs 5700
}

// How do I take messages when I want them, instead of in a handler?
func ExampleBroker_Stream() {
	ctx := context.Background()
	server := amqptest.NewServer()
	must(server.Put("orders", amqp.NewMessage([]byte("lamp")), amqp.NewMessage([]byte("desk"))))
	b := amqpflow.New("amqp://localhost:5672")
	orders := b.Stream("orders")
	must(server.Connect(ctx, b))

	for d, err := range orders.Deliveries(ctx) {
		if err != nil {
			fmt.Println("the stream ended:", err)
			break
		}
		fmt.Printf("%s\n", d.Data())
		must(d.Accept(ctx))
		if slices.Equal(d.Data(), []byte("desk")) {
			break // the link stays: another loop goes on from here
		}
	}
	must(b.Shutdown(ctx))
	must(server.Close())
	// Output:
	// lamp
	// desk
}

// How do I range over decoded messages, and what of one that cannot be?
func ExampleMessages() {
	ctx := context.Background()
	server := amqptest.NewServer()
	for _, body := range []string{`{"item": "lamp"}`, `not JSON`, `{"item": "desk"}`} {
		must(server.Put("orders", amqp.NewMessage([]byte(body))))
	}
	b := amqpflow.New("amqp://localhost:5672")
	orders := b.Stream("orders")
	must(server.Connect(ctx, b))

	for m, err := range amqpflow.Messages[Order](ctx, orders) {
		switch {
		case m == nil:
			fmt.Println("the stream ended:", err)
		case err != nil:
			fmt.Printf("rejected %s\n", m.Data()) // OnFailure says otherwise
			continue
		default:
			fmt.Println(m.Body.Item)
			must(m.Accept(ctx))
		}
		if m == nil || m.Body.Item == "desk" {
			break
		}
	}
	must(b.Shutdown(ctx))
	must(server.Close())
	// Output:
	// lamp
	// rejected not JSON
	// desk
}
