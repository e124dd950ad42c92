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

// connected is a publisher of a broker that is connected to server.
func connected(server *amqptest.Server, opts ...*amqpflow.Options) *amqpflow.Publisher {
	b := amqpflow.New("amqp://localhost:5672", opts...)
	must(server.Connect(context.Background(), b))
	return b.Publisher()
}

// How do I publish a value?
func ExamplePublisher_Publish() {
	server := amqptest.NewServer()
	ctx, publisher := context.Background(), connected(server)

	must(publisher.Publish(ctx, "orders", Order{Item: "lamp", Count: 3})) // JSON
	must(publisher.Publish(ctx, "orders", "as it is"))                    // text/plain
	must(publisher.Publish(ctx, "orders", []byte{'b', 'i', 'n'}))         // application/octet-stream
	for _, m := range server.Messages("orders") {
		fmt.Printf("%s: %s\n", *m.Properties.ContentType, m.GetData())
	}
	// Output:
	// application/json: {"item":"lamp","count":3}
	// text/plain: as it is
	// application/octet-stream: bin
}

// What do the errors of a publish mean?
func ExamplePublisher_Publish_errors() {
	server := amqptest.NewServer()
	publisher := connected(server)
	full := &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "the queue is full"}
	must(server.Fault(amqptest.Answer("orders", amqpflow.Rejected, full).After(1)))
	must(server.Fault(amqptest.Answer("orders", amqpflow.OutcomeNone, nil).After(1)))

	for range 3 {
		err := publisher.Publish(context.Background(), "orders", "lamp")
		refused, isRefused := errors.AsType[*amqpflow.PublishError](err)
		switch {
		case err == nil:
			fmt.Println("confirmed: the peer has it")
		case errors.Is(err, amqpflow.ErrUncertain):
			fmt.Println("uncertain: the peer may have it, a second one may be a duplicate")
		case isRefused:
			fmt.Println("refused, safe to publish again:", refused.Outcome, refused.Description)
		default:
			fmt.Println("not sent, safe to publish again:", err)
		}
	}
	// Output:
	// confirmed: the peer has it
	// refused, safe to publish again: rejected the queue is full
	// uncertain: the peer may have it, a second one may be a duplicate
}

// How do I publish much in little time?
func ExamplePublisher_Send() {
	server := amqptest.NewServer()
	ctx, publisher := context.Background(), connected(server)

	var receipts []*amqpflow.Receipt
	for i := range 100 {
		receipt, err := publisher.Send(ctx, "orders", i) // waits only while MaxInFlight are unconfirmed
		must(err)
		receipts = append(receipts, receipt)
	}
	for _, receipt := range receipts {
		must(receipt.Wait(ctx)) // the errors are those of Publish
	}
	stored, err := amqptest.Bodies[int](server, "orders")
	fmt.Println(len(stored), stored[0], stored[99], err)
	// Output: 100 0 99 <nil>
}

// How do I react to the outcome of one Send among other events?
func ExampleReceipt() {
	ctx, publisher := context.Background(), connected(amqptest.NewServer())
	receipt, err := publisher.Send(ctx, "orders", "lamp")
	must(err)
	select {
	case <-receipt.Done():
		fmt.Println("confirmed:", receipt.Wait(ctx) == nil)
	case <-time.After(time.Minute):
		fmt.Println("still under way")
	}
	// Output: confirmed: true
}

// How do I wait for everything that I have sent, when I keep no receipts?
func ExamplePublisher_Flush() {
	server := amqptest.NewServer()
	ctx := context.Background()
	publisher := connected(server, &amqpflow.Options{Observer: &amqpflow.Observer{
		Published: func(addr amqpflow.Address, _ amqpflow.Outcome, _ time.Duration, err error) {
			if err != nil {
				fmt.Println(addr, err) // where the failures of such Sends are seen
			}
		},
	}})
	for i := range 100 {
		_, err := publisher.Send(ctx, "orders", i)
		must(err)
	}
	must(publisher.Flush(ctx))
	fmt.Println(len(server.Messages("orders")))
	// Output: 100
}

// How do I set the properties and headers of a message?
func ExamplePublishOptions() {
	server := amqptest.NewServer()
	ctx, publisher := context.Background(), connected(server)
	must(publisher.Publish(ctx, "orders", "lamp", &amqpflow.PublishOptions{
		MessageID:  "order 7", // what a receiver finds duplicates by
		Subject:    "new",
		GroupID:    "customer 1",
		ReplyTo:    "answers",
		Headers:    map[string]any{"region": "north", "rush": true},
		TTL:        time.Hour,
		Priority:   new(uint8(9)),
		NonDurable: true,
	}))
	m := server.Messages("orders")[0]
	fmt.Println(m.Properties.MessageID, *m.Properties.Subject, *m.Properties.GroupID, *m.Properties.ReplyTo)
	fmt.Println(m.ApplicationProperties["region"], m.ApplicationProperties["rush"])
	fmt.Println(m.Header.TTL, m.Header.Priority, m.Header.Durable)
	// Output:
	// order 7 new customer 1 answers
	// north true
	// 1h0m0s 9 false
}

// How do I add something to every message that leaves?
func ExamplePublishMiddleware() {
	stamp := func(next amqpflow.PublishFunc) amqpflow.PublishFunc {
		return func(ctx context.Context, addr amqpflow.Address, m *amqp.Message) error {
			m.ApplicationProperties = map[string]any{"version": "v7"}
			return next(ctx, addr, m)
		}
	}
	server := amqptest.NewServer()
	publisher := connected(server, &amqpflow.Options{PublishMiddleware: []amqpflow.PublishMiddleware{stamp}})
	must(publisher.Publish(context.Background(), "orders", "lamp"))
	fmt.Println(server.Messages("orders")[0].ApplicationProperties)
	// Output: map[version:v7]
}
