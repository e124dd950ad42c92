package amqptest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// Where does an order go that keeps failing?
func ExampleServer_Declare() {
	ctx := context.Background()
	s := amqptest.NewServer()
	fmt.Println(s.Declare("orders", &amqptest.NodeOptions{MaxDeliveries: 3, DeadLetter: "failed"}))
	fmt.Println(s.Declare("orders", &amqptest.NodeOptions{TTL: -time.Second}))

	b := amqpflow.New("amqp://localhost")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println("attempt", m.Attempt())
		return errors.New("no eggs")
	})
	fmt.Println(s.Put("orders", amqp.NewMessage([]byte("12 eggs"))), s.Connect(ctx, b), s.Idle(ctx))
	failed, err := amqptest.Bodies[string](s, "failed")
	fmt.Println(failed, err)
	fmt.Println(b.Shutdown(ctx), s.Close())
	// Output:
	// <nil>
	// amqptest: declare "orders": NodeOptions.TTL: -1s is not a number of milliseconds
	// attempt 1
	// attempt 2
	// attempt 3
	// <nil> <nil> <nil>
	// [12 eggs] <nil>
	// <nil> <nil>
}

// Does the service work with RabbitMQ, where a topic is an exchange?
func ExampleOptions_dialect() {
	ctx := context.Background()
	s := amqptest.NewServer(&amqptest.Options{Dialect: amqpflow.DialectRabbitMQ})
	fmt.Println(s.Declare("bookkeeping", &amqptest.NodeOptions{Bind: []string{"amq.topic/prices.#"}}))

	b := amqpflow.New("amqp://localhost")
	fmt.Println(s.Connect(ctx, b))
	fmt.Println(b.Publisher().Publish(ctx, amqpflow.Topic("prices.eggs"), "0.30"))
	var refused *amqpflow.PublishError
	if err := b.Publisher().Publish(ctx, amqpflow.Topic("costs.eggs"), "0.20"); errors.As(err, &refused) {
		fmt.Println("no queue is bound:", refused.Outcome)
	}
	prices, err := amqptest.Bodies[string](s, "bookkeeping")
	fmt.Println(prices, err)
	fmt.Println(b.Shutdown(ctx), s.Close())
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// no queue is bound: released
	// [0.30] <nil>
	// <nil> <nil>
}
