package main

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// config is what the command line says.
type config struct {
	listen string
	limit  time.Duration
	nodes  []amqpflow.Address
	amqptest.Options
}

var dialects = map[string]amqpflow.Dialect{
	"generic": amqpflow.DialectGeneric, "artemis": amqpflow.DialectArtemis, "rabbitmq": amqpflow.DialectRabbitMQ,
}

func parse() *config {
	c := &config{Options: amqptest.Options{Users: map[string]string{}}}
	level, trace := slog.LevelWarn, false
	host := flag.String("host", "127.0.0.1", "`address` to listen on")
	port := flag.String("port", "5672", "`port` to listen on; 0 picks one")
	flag.DurationVar(&c.limit, "for", 0, "how long to serve; 0 is until interrupted")
	flag.Func("v", "`what` to log: error, warn, info (connections), debug (links, settlements) or trace (frames)", func(name string) error {
		if trace = name == "trace"; trace {
			name = "debug"
		}
		return level.UnmarshalText([]byte(name))
	})
	flag.Func("queues", "`names` that are there from the start: orders,invoices", list(func(name string) error {
		c.nodes = append(c.nodes, amqpflow.Queue(name))
		return nil
	}))
	flag.Func("topics", "`names` that are there from the start: prices", list(func(name string) error {
		c.nodes = append(c.nodes, amqpflow.Topic(name))
		return nil
	}))
	flag.Func("users", "`who` is let in, everyone by default: ann:secret,ben:other", list(func(user string) error {
		name, password, ok := strings.Cut(user, ":")
		if !ok {
			return fmt.Errorf("%q has no password", user)
		}
		c.Users[name] = password
		return nil
	}))
	flag.Func("dialect", "`broker` to answer as: generic, artemis or rabbitmq (default generic)", func(name string) (err error) {
		var ok bool
		if c.Dialect, ok = dialects[name]; !ok {
			err = fmt.Errorf("neither generic, artemis nor rabbitmq")
		}
		return err
	})
	flag.Parse()
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if trace {
		c.Trace = c.Logger
	}
	c.listen = net.JoinHostPort(*host, *port)
	return c
}

func list(add func(string) error) func(string) error {
	return func(s string) (err error) {
		for item := range strings.SplitSeq(s, ",") {
			err = cmp.Or(err, add(item))
		}
		return err
	}
}
