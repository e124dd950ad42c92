package amqptest_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// Does a service come back after its broker has been restarted?
func ExampleSequence() {
	ctx := context.Background()
	s := amqptest.NewServer()
	b := amqpflow.New("amqp://localhost")
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		fmt.Println(m.Body)
		return nil
	})
	fmt.Println(s.Connect(ctx, b), s.Put("orders", amqp.NewMessage([]byte("first"))), s.Idle(ctx))

	restart := amqptest.Sequence(
		amqptest.Close(amqp.ErrCondConnectionForced, "restarting"),
		amqptest.RefuseTCP().Times(2),
	)
	fmt.Println(restart)
	fmt.Println(s.Fault(restart), s.Put("orders", amqp.NewMessage([]byte("second"))), s.Idle(ctx))
	fmt.Println(b.Shutdown(ctx), s.Close())
	// Output:
	// first
	// <nil> <nil> <nil>
	// sequence (close with amqp:connection:forced "restarting"; refuse TCP, 2 times)
	// second
	// <nil> <nil> <nil>
	// <nil> <nil>
}

// What did the client and the broker say to each other?
func ExampleServer_Frames() {
	ctx := context.Background()
	s := amqptest.NewServer()
	b := amqpflow.New("amqp://localhost")
	fmt.Println(s.Connect(ctx, b), b.Publisher().Publish(ctx, "orders", "12 eggs"))
	for _, f := range s.Frames() {
		if f.Name == "transfer" || f.Name == "disposition" {
			fmt.Println(f.Name, f.Fields)
		}
	}
	fmt.Println(b.Shutdown(ctx), s.Close())
	// Output:
	// <nil> <nil>
	// transfer [handle=0 delivery-id=0 delivery-tag=00000000 message-format=0 payload=59]
	// disposition [role=receiver first=0 settled=true state=accepted]
	// <nil> <nil>
}

// What can be done when nobody listens?
func ExampleRefuseTCP() {
	s := amqptest.NewServer()
	fmt.Println(s.Fault(amqptest.RefuseTCP().Always()))
	err := s.Connect(context.Background(), amqpflow.New("amqp://localhost"))
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED), s.Close())
	// Output:
	// <nil>
	// true <nil>
}
