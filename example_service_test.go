package amqpflow_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// How do I test a service with its own wiring?
func Example_testing() {
	// The service.
	register := func(b *amqpflow.Broker) {
		amqpflow.Subscribe(b, "orders", func(ctx context.Context, m *amqpflow.Message[Order]) error {
			return b.Publisher().Publish(ctx, "invoices", m.Body.Count*1900)
		})
	}

	// Its test: no port, no network, and every user is let in.
	ctx := context.Background()
	server := amqptest.NewServer()
	b := amqpflow.New("amqps://shop:secret@broker.example.com")
	register(b)
	must(server.Put("orders", amqp.NewMessage([]byte(`{"item": "lamp", "count": 3}`))))
	must(server.Connect(ctx, b))
	for invoice, err := range amqpflow.Messages[int](ctx, b.Stream("invoices")) { // what came out
		fmt.Println(invoice.Body, err, invoice.Accept(ctx))
		break
	}
	must(server.Idle(ctx)) // nothing is queued, unsettled or in flight
	fmt.Println(server.Settlements("orders")[0].Outcome)
	must(b.Shutdown(ctx))
	must(server.Close()) // an error for every rule of the protocol that was broken
	// Output:
	// 5700 <nil> <nil>
	// accepted
}

// How does a service end without losing anything?
func ExampleBroker_Run() {
	ctx, interrupt := context.WithCancel(context.Background()) // signal.NotifyContext in a service
	b := amqpflow.New("amqp://localhost:5672", &amqpflow.Options{ShutdownTimeout: 10 * time.Second})
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error {
		interrupt()
		fmt.Println("shipped") // the handler that runs may finish
		return nil
	})
	server := amqptest.NewServer()
	must(server.Put("orders", amqp.NewMessage([]byte("lamp"))))
	must(server.Connect(ctx, b)) // Run connects by itself unless that is done

	fmt.Println("ended with", b.Run(ctx)) // what no handler had begun went back, uncounted
	must(server.Close())
	// Output:
	// shipped
	// ended with <nil>
}

// How do I end a service beside an HTTP server, with a bound of my own?
func ExampleBroker_Shutdown() {
	begun := make(chan struct{})
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(ctx context.Context, _ *amqpflow.Message[string]) error {
		close(begun)
		<-ctx.Done() // only when Shutdown gives it up
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	server := amqptest.NewServer()
	must(server.Put("orders", amqp.NewMessage([]byte("lamp"))))
	must(server.Connect(context.Background(), b))
	<-begun
	bound, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	fmt.Println("in time:", b.Shutdown(bound) == nil)
	// Output:
	// amqpflow: shut down
	// in time: false
}

// What do I answer to a readiness probe?
func ExampleBroker_Ready() {
	b := amqpflow.New("amqp://localhost:5672")
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error { return nil })
	fmt.Println(b.Ready())

	server := amqptest.NewServer()
	must(server.Connect(context.Background(), b))
	fmt.Println(b.Ready())
	// Output:
	// amqpflow: not connected: call Connect or Run first
	// amqpflow: subscription "orders": registered
	// <nil>
}

// How do I do something around every handler?
func ExampleMiddleware() {
	timed := func(next amqpflow.CallFunc) amqpflow.CallFunc {
		return func(ctx context.Context, c *amqpflow.Call) error {
			err := next(ctx, c) // it may return another error, and so another outcome
			fmt.Println(c.Subscription.Address(), len(c.Deliveries), amqpflow.OutcomeOf(err))
			return err
		}
	}
	b := amqpflow.New("amqp://localhost:5672", &amqpflow.Options{Middleware: []amqpflow.Middleware{timed}})
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error { return nil })
	run(b, "lamp")
	// Output: orders 1 accepted
}

// How do I count what happens?
func ExampleObserver() {
	var mu sync.Mutex // several goroutines at once
	counts := make(map[string]int)
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
	}
	b := amqpflow.New("amqp://localhost:5672", &amqpflow.Options{Observer: &amqpflow.Observer{
		Connection: func(up bool, _ error) { count(fmt.Sprint("up ", up)) },
		State:      func(_ *amqpflow.Subscription, s amqpflow.State, _ error) { count(s.String()) },
		Settled: func(_ *amqpflow.Delivery, outcome amqpflow.Outcome, _ time.Duration, _ error) {
			count(outcome.String())
		},
		Error: func(error) { count("error") },
	}})
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
		if m.Body == "unicorn" {
			return amqpflow.Reject(errors.New("no such animal"))
		}
		return nil
	})
	run(b, "lamp", "unicorn", "desk")
	fmt.Println(counts["accepted"], counts["rejected"], counts["attached"], counts["up true"], counts["error"])
	// Output: 2 1 1 1 0
}

// xmlCodec is all that a format of one's own needs.
type xmlCodec struct{}

func (xmlCodec) ContentType() string { return "application/xml" }

func (xmlCodec) Append(dst []byte, v any) ([]byte, error) {
	data, err := xml.Marshal(v)
	return append(dst, data...), err
}

func (xmlCodec) Decode(data []byte, v any) error { return xml.Unmarshal(data, v) }

// How do I use another format than JSON?
func ExampleCodec() {
	b := amqpflow.New("amqp://localhost:5672", &amqpflow.Options{
		Codecs: []amqpflow.Codec{xmlCodec{}, amqpflow.JSON()}, // the first is the default; the content type chooses
	})
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[Order]) error {
		fmt.Println(m.Body.Item)
		return nil
	})
	run(b, "<Order><Item>lamp</Item></Order>")
	// Output: lamp
}

// How do I use TLS with a client certificate?
func ExampleOptions_tls() {
	authority, certificate := exampleCertificate()
	server := amqptest.NewServer()
	listener, err := tls.Listen("tcp", "localhost:0", &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	must(err)
	var serving sync.WaitGroup
	serving.Go(func() { must(server.Serve(listener)) })

	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(err)
	b := amqpflow.New("amqps://localhost:"+port, &amqpflow.Options{
		TLS: &tls.Config{RootCAs: authority, Certificates: []tls.Certificate{certificate}},
		// The certificate says who we are, where the broker knows EXTERNAL:
		// Credentials: func(context.Context) (amqp.SASLType, error) { return amqp.SASLTypeExternal(""), nil },
	})
	fmt.Println(b.Connect(context.Background()))
	must(b.Shutdown(context.Background()))
	must(server.Close())
	serving.Wait()
	// Output: <nil>
}

// exampleCertificate is one for both ends, and the authority that signed it.
func exampleCertificate() (*x509.CertPool, tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	parsed, err := x509.ParseCertificate(der)
	must(err)
	authority := x509.NewCertPool()
	authority.AddCert(parsed)
	return authority, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
