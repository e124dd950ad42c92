// Command bench compares amqpflow with a raw go-amqp loop that does the same
// work. README.md says how to repeat the published figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	if os.Getenv(sourceEnv) != "" {
		exit(runSourceProcess(os.Stdin, os.Stdout))
	}
	var c config
	flag.StringVar(&c.peer, "peer", "source", "`source`, or a broker's URL (amqp://user:password@host:port)")
	flag.StringVar(&c.only, "only", "", "run only the scenario of this `name`")
	flag.StringVar(&c.json, "json", "", "also write the results to this `file`")
	flag.IntVar(&c.rounds, "rounds", 0, "counted `rounds` of each scenario (default: the scenario's own number)")
	flag.StringVar(&c.queueType, "queue-type", "classic", "RabbitMQ: `type` of the queues to make")
	flag.BoolVar(&c.null, "null", false, "raw go-amqp on both sides: shows how far from 1 the method itself strays")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(c.run(ctx))
}

// exit ends the process, with status 1 if there is an error to print.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// config is the command line.
type config struct {
	peer, only, json, queueType string
	rounds                      int
	null                        bool
}

// run measures the chosen scenarios against the chosen peer and prints them.
// Scenarios measured before an error are printed and written all the same.
func (c config) run(ctx context.Context) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	chosen, err := chooseScenarios(p.broker(), c.only)
	if err != nil {
		return errors.Join(err, p.close())
	}
	r := runner{peer: p, raw: rawSide{}, flow: flowSide{}, rounds: c.rounds}
	if c.null {
		r.flow = rawSide{}
	}
	fmt.Printf("peer: %s\n", p.describe())
	results, err := r.runAll(ctx, chosen)
	printTable(os.Stdout, results)
	if c.json != "" {
		err = errors.Join(err, writeJSON(c.json, results))
	}
	return errors.Join(err, p.close())
}

// open starts the source process or connects to the broker.
func (c config) open(ctx context.Context) (peer, error) {
	if c.peer == "source" {
		return startSource()
	}
	return openBroker(ctx, c.peer, c.queueType)
}
