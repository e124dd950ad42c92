// Http: a service that takes orders over HTTP and publishes them. Connect and
// Shutdown stand beside the HTTP server's own two verbs.
package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

// routes answers 202 only for what the broker has.
func routes(b *amqpflow.Broker, orders amqpflow.Address) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		err := b.Publisher().Publish(r.Context(), orders, r.FormValue("item"))
		switch {
		case err == nil:
			w.WriteHeader(http.StatusAccepted)
		case errors.Is(err, amqpflow.ErrUncertain): // the broker may have it
			http.Error(w, "ask before you order again", http.StatusGatewayTimeout)
		default: // refused or not sent: safe to try again
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := b.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

func main() { peer.Main(run, "orders") }

func run(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL)
	if err := b.Connect(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(b, p.Queue("orders")), ReadHeaderTimeout: time.Second}
	serving, stop := context.WithCancel(ctx) // stands for signal.NotifyContext
	defer stop()
	ended := make(chan error, 1)
	context.AfterFunc(serving, func() { // requests finish first, then what they published
		bound, cancel := context.WithTimeout(context.WithoutCancel(serving), 10*time.Second)
		defer cancel()
		ended <- errors.Join(server.Shutdown(bound), b.Shutdown(bound))
	})
	var customer sync.WaitGroup
	customer.Go(func() {
		defer stop()
		err = buy(ctx, "http://"+listener.Addr().String()+"/orders?item=lamp")
	})
	if served := server.Serve(listener); !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	customer.Wait()
	return errors.Join(err, <-ended)
}
