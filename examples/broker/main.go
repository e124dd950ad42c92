// Broker: the broker in memory on a port, for any AMQP 1.0 client in any
// language, until it is interrupted. Then it says what is left in each queue;
// nothing is kept. -h lists what it can be told.
package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

func main() {
	if err := serve(parse()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(c *config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.limit > 0 {
		time.AfterFunc(c.limit, stop)
	}
	server := amqptest.NewServer(&c.Options)
	for _, address := range c.nodes {
		if err := server.Declare(address); err != nil {
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return err
	}
	for _, url := range c.urls(listener.Addr()) {
		fmt.Println("serving AMQP 1.0 on", url)
	}

	closed := make(chan error, 1)
	context.AfterFunc(ctx, func() { closed <- server.Close() })
	if err := server.Serve(listener); err != nil {
		return err
	}
	broken := <-closed
	fmt.Println("stopped")
	report(server)
	return broken
}

// urls are how clients get in: one for each user, or one for everyone.
func (c *config) urls(addr net.Addr) (r []string) {
	u := url.URL{Scheme: "amqp", Host: addr.String()}
	for _, name := range slices.Sorted(maps.Keys(c.Users)) {
		u.User = url.UserPassword(name, c.Users[name])
		r = append(r, u.String())
	}
	if len(r) == 0 {
		r = append(r, u.String())
	}
	return r
}

func report(server *amqptest.Server) {
	for _, name := range server.Nodes() {
		node := amqpflow.Raw(name)
		fmt.Printf("%s: %d left, %d dead\n", name, len(server.Messages(node)), len(server.DeadLetters(node)))
	}
}
