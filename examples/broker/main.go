// Broker: the broker in memory on a port, for any AMQP 1.0 client in any
// language, until it is interrupted. Queues are there once somebody names them
// and every user is let in; nothing is kept when it ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/amqpflow/amqpflow/amqptest"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:5672", "host and port to listen on; port 0 picks one")
	limit := flag.Duration("for", 0, "how long to serve; 0 is until interrupted")
	flag.Parse()
	if err := serve(*addr, *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(addr string, limit time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if limit > 0 {
		time.AfterFunc(limit, stop)
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("serving AMQP 1.0 on amqp://%s\n", listener.Addr())

	server := amqptest.NewServer()
	closed := make(chan error, 1)
	context.AfterFunc(ctx, func() { closed <- server.Close() })
	if err := server.Serve(listener); err != nil {
		return err
	}
	fmt.Println("stopped")
	return <-closed
}
