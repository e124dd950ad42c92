package amqptest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// What did a handler make of the messages that it was given?
func ExampleServer_Settlements() {
	ctx := context.Background()
	s := amqptest.NewServer()
	b := amqpflow.New("amqp://localhost")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		if m.Body == "" {
			return amqpflow.Reject(errors.New("an empty order"))
		}
		return nil
	})
	good, empty := amqp.NewMessage([]byte("12 eggs")), amqp.NewMessage(nil)
	good.Properties = &amqp.MessageProperties{MessageID: "good"}
	empty.Properties = &amqp.MessageProperties{MessageID: "empty"}
	fmt.Println(s.Put("orders", good, empty), s.Connect(ctx, b), s.Idle(ctx))

	for _, settled := range s.Settlements("orders") {
		fmt.Println(settled.MessageID, settled.Outcome)
	}
	fmt.Println(len(s.DeadLetters("orders")), "dead letter")
	fmt.Println(b.Shutdown(ctx), s.Close())
	// Output:
	// <nil> <nil> <nil>
	// good accepted
	// empty rejected
	// 1 dead letter
	// <nil> <nil>
}

// What does a service do when its publish is refused?
func ExampleServer_Fault() {
	ctx := context.Background()
	s := amqptest.NewServer()
	b := amqpflow.New("amqp://localhost")
	full := &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "the queue is full"}
	fmt.Println(s.Connect(ctx, b), s.Fault(amqptest.Answer("orders", amqpflow.Rejected, full)))

	var refused *amqpflow.PublishError
	err := b.Publisher().Publish(ctx, "orders", "first")
	fmt.Println(errors.As(err, &refused), refused.Outcome, refused.Description)
	fmt.Println(b.Publisher().Publish(ctx, "orders", "second"))

	stored, err := amqptest.Bodies[string](s, "orders")
	fmt.Println(stored, err)
	fmt.Println(b.Shutdown(ctx), s.Close())
	// Output:
	// <nil> <nil>
	// true rejected the queue is full
	// <nil>
	// [second] <nil>
	// <nil> <nil>
}
