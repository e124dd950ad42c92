package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// How do I try again later, when I know how much later?
func ExampleRetryAfter() {
	b := amqpflow.New("amqp://localhost:5672")
	started := time.Now()
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		if m.Attempt() == 1 {
			return amqpflow.RetryAfter(50*time.Millisecond, errors.New("the shop opens later"))
		}
		fmt.Println(m.Body, "at attempt", m.Attempt(), time.Since(started) >= 50*time.Millisecond)
		return nil
	})
	run(b, "lamp")
	// Output: lamp at attempt 2 true
}

// How do I put aside what will never work?
func ExampleDeadLetter() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		return amqpflow.DeadLetter(fmt.Errorf("nobody sells a %s", m.Body))
	}, &amqpflow.SubscribeOptions{DeadLetter: "orders.dead"})
	amqpflow.Subscribe(b, "orders.dead", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Printf("%s from %v: %v\n", m.Body, m.Header("dead-letter-source"), m.Header("dead-letter-description"))
		return nil
	})
	run(b, "unicorn")
	// Output: unicorn from orders: nobody sells a unicorn
}

// How do I keep a message from failing for ever?
func ExampleSubscribeOptions_maxAttempts() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println("attempt", m.Attempt())
		return errors.New("out of stock")
	}, &amqpflow.SubscribeOptions{MaxAttempts: 3, DeadLetter: "orders.dead", RetryMax: 10 * time.Millisecond})
	amqpflow.Subscribe(b, "orders.dead", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println(m.Header("dead-letter-reason"), m.Header("dead-letter-attempts"))
		return nil
	})
	run(b, "lamp")
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// max-attempts 3
}

// How do I keep the order when something fails?
func ExampleSubscribeOptions_orderedRetry() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println(m.Body, "attempt", m.Attempt())
		if m.Body == "desk" && m.Attempt() == 1 {
			return errors.New("out of stock")
		}
		return nil
	}, &amqpflow.SubscribeOptions{OrderedRetry: true, RetryMax: 10 * time.Millisecond})
	run(b, "lamp", "desk", "sofa")
	// Output:
	// lamp attempt 1
	// desk attempt 1
	// desk attempt 2
	// sofa attempt 1
}

// How do I stop receiving for a while?
func ExampleSubscription_Pause() {
	ctx := context.Background()
	server := amqptest.NewServer()
	b := amqpflow.New("amqp://localhost:5672")
	sub := amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println(m.Body)
		return nil
	})
	must(server.Connect(ctx, b))
	must(sub.Pause(ctx)) // what was prefetched goes back
	must(b.Publisher().Publish(ctx, "orders", "lamp"))
	fmt.Println(sub.State(), "and ready:", b.Ready() == nil)
	must(sub.Resume())
	must(server.Idle(ctx))
	must(b.Shutdown(ctx))
	// Output:
	// paused and ready: true
	// lamp
}

// How do I learn what a shutdown did with what was under way?
func ExampleShutdownReport() {
	b := amqpflow.New("amqp://localhost:5672", &amqpflow.Options{Observer: &amqpflow.Observer{
		Shutdown: func(r amqpflow.ShutdownReport) {
			fmt.Println("completed", r.Completed, "released", r.Released, "abandoned", r.Abandoned)
		},
	}})
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error { return nil })
	run(b, "lamp")
	// Output: completed 0 released 0 abandoned 0
}
