package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// run is what Run does for a service, on a broker in memory that has bodies in
// the queue "orders": it serves them and returns when the last one is settled for good.
func run(b *amqpflow.Broker, bodies ...string) {
	ctx := context.Background()
	server := amqptest.NewServer(&amqptest.Options{MaxDeliveries: 3})
	for _, body := range bodies {
		must(server.Put("orders", amqp.NewMessage([]byte(body))))
	}
	must(server.Connect(ctx, b))
	must(server.Idle(ctx))
	must(b.Shutdown(ctx))
	must(server.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// How do I receive messages of a type?
func ExampleSubscribe() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[Order]) error {
		fmt.Printf("%d × %s\n", m.Body.Count, m.Body.Item)
		return nil // accepted
	})
	run(b, `{"item": "lamp", "count": 3}`, `{"item": "desk", "count": 1}`)
	// Output:
	// 3 × lamp
	// 1 × desk
}

// How do I receive bytes, with the headers and properties of a message?
func ExampleBroker_Subscribe() {
	b := amqpflow.New("amqp://localhost:5672")
	b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
		fmt.Printf("%s, attempt %d, content type %q, region %v\n", d.Data(), d.Attempt(), d.ContentType(), d.Header("region"))
		return nil
	})
	run(b, "any bytes")
	// Output: any bytes, attempt 1, content type "", region <nil>
}

// How do I serve several queues at once?
func ExampleBroker_Subscriptions() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[Order]) error { return nil })
	amqpflow.Subscribe(b, "invoices", func(context.Context, *amqpflow.Message[string]) error { return nil },
		&amqpflow.SubscribeOptions{Credit: 10})

	// One connection, a session for each: a slow handler holds up its own queue.
	server := amqptest.NewServer()
	must(server.Connect(context.Background(), b))
	for _, s := range b.Subscriptions() {
		fmt.Println(s.Address(), s.State(), s.Stats().Credit)
	}
	must(b.Shutdown(context.Background()))
	must(server.Close())
	// Output:
	// orders attached 256
	// invoices attached 10
}

// How do I say that a message will never do?
func ExampleReject() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[Order]) error {
		if m.Body.Count < 1 {
			return amqpflow.Reject(fmt.Errorf("%d of %q", m.Body.Count, m.Body.Item))
		}
		fmt.Println("shipped", m.Body.Item)
		return nil
	})
	// The rejected one is a dead letter, where the broker keeps those.
	run(b, `{"item": "lamp", "count": 0}`, `{"item": "desk", "count": 1}`)
	// Output: shipped desk
}

// How do I have a message delivered again, and how often was it?
func ExampleRetry() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println(m.Body, "attempt", m.Attempt())
		if m.Attempt() == 1 {
			return amqpflow.Retry(errors.New("the warehouse is closed")) // or just the error
		}
		return nil
	})
	run(b, "lamp")
	// Output:
	// lamp attempt 1
	// lamp attempt 2
}

// How do I give a message back that I have not tried?
func ExampleRelease() {
	ready := false
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println(m.Body, "attempt", m.Attempt())
		if !ready {
			ready = true
			return amqpflow.Release() // not counted; another consumer may have it
		}
		return nil
	})
	run(b, "lamp")
	// Output:
	// lamp attempt 1
	// lamp attempt 1
}

// How do I test what a handler's errors mean, without any broker?
func ExampleOutcomeOf() {
	handle := func(count int) error {
		switch {
		case count < 0:
			return amqpflow.Reject(errors.New("negative"))
		case count == 0:
			return errors.New("the database is away")
		}
		return nil
	}
	fmt.Println(amqpflow.OutcomeOf(handle(1)), amqpflow.OutcomeOf(handle(0)), amqpflow.OutcomeOf(handle(-1)))
	// Output: accepted modified rejected
}

// How do I settle a message in the middle of a handler?
func ExampleDelivery_Settle() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(ctx context.Context, m *amqpflow.Message[string]) error {
		if err := m.Settle(ctx, nil); err != nil { // nil: accepted; the same as m.Accept(ctx)
			return err // ErrLinkLost: the broker will deliver it again
		}
		fmt.Println("again:", errors.Is(m.Accept(ctx), amqpflow.ErrSettled))
		return errors.New("only logged: the delivery is settled")
	})
	run(b, "lamp")
	// Output: again: true
}

// How do I decide in one place what my errors mean?
func ExampleSubscribeOptions_onFailure() {
	errNoSuchItem := errors.New("no such item")
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[Order]) error {
		return errNoSuchItem
	}, &amqpflow.SubscribeOptions{OnFailure: func(d *amqpflow.Delivery, err error) error {
		switch _, undecodable := errors.AsType[*amqpflow.DecodeError](err); {
		case undecodable:
			fmt.Printf("dropping %q\n", d.Data())
			return nil // accepted: gone
		case errors.Is(err, errNoSuchItem):
			fmt.Println("rejecting:", err)
			return amqpflow.Reject(err)
		}
		return err // a retry
	}})
	run(b, `{"item": "unicorn"}`, `not JSON`)
	// Output:
	// rejecting: no such item
	// dropping "not JSON"
}

// How do I bound how long a handler runs?
func ExampleSubscribeOptions_handlerTimeout() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(ctx context.Context, _ *amqpflow.Message[string]) error {
		<-ctx.Done() // a query, a request: whatever takes the context
		fmt.Println(ctx.Err())
		return amqpflow.Reject(ctx.Err()) // the timeout only cancels; this is the outcome
	}, &amqpflow.SubscribeOptions{HandlerTimeout: 10 * time.Millisecond})
	run(b, "lamp")
	// Output: context deadline exceeded
}
