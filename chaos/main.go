// Command chaos puts amqpflow under load and under faults, keeps a ledger of
// every message in both directions, and says what was lost. README.md lists
// the scenarios and what is checked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errBreach):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
}

var errBreach = errors.New("an invariant was breached")

// run is main without the process.
func run(ctx context.Context, args []string) error {
	b := &battery{canary: &canary{}, out: os.Stdout}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	names := flags.String("scenario", "all", "`names` of scenarios, with commas between them, or all")
	list := flags.Bool("list", false, "list the scenarios and end")
	lasting := flags.Duration("for", 0, "go on with further seeds until this `time` has passed")
	flags.Uint64Var(&b.seed, "seed", 1, "of everything that is random")
	flags.BoolVar(&b.long, "long", false, "the long form")
	flags.DurationVar(&b.soak, "soak", 0, "how `long` the scenario soak lasts, instead of 1m, or 1h in the long form")
	b.artemis.flags(flags, "artemis")
	b.rabbit.flags(flags, "rabbitmq")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, s := range scenarios {
			fmt.Printf("%-16s %s\n", s.name, s.about)
		}
		return nil
	}
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	b.repeat(ctx, chosen, *lasting)
	fmt.Fprintln(b.out)
	printTable(b.out, b.results)
	for _, m := range b.missing {
		fmt.Fprintln(b.out, "LEFT OUT", m)
	}
	if b.failed() || len(b.results) == 0 {
		return errBreach
	}
	return ctx.Err()
}

// repeat plays with seed after seed until the time has passed, once at least.
func (b *battery) repeat(ctx context.Context, chosen []scenario, lasting time.Duration) {
	end := time.Now().Add(lasting)
	watching, stop := context.WithCancel(ctx)
	var canary sync.WaitGroup
	canary.Go(func() { b.canary.watch(watching) })
	for seed := b.seed; seed == b.seed || time.Now().Before(end) && ctx.Err() == nil; seed++ {
		b.play(ctx, chosen, seed)
	}
	stop()
	canary.Wait()
}

// flags are the broker's, with the environment for a default: -artemis-kill is
// CHAOS_ARTEMIS_KILL.
func (b *broker) flags(f *flag.FlagSet, name string) {
	env := func(what string) string { return os.Getenv("CHAOS_" + strings.ToUpper(name) + "_" + what) }
	f.StringVar(&b.url, name, env("URL"), "`URL` of a broker that belongs to the battery")
	f.StringVar((*string)(&b.start), name+"-start", env("START"), "`command` that starts it")
	f.StringVar((*string)(&b.kill), name+"-kill", env("KILL"), "`command` that kills it, with signal 9")
	f.StringVar((*string)(&b.ctl), name+"-ctl", env("CTL"), "`command` that controls it; arguments are added")
}

func choose(names string) ([]scenario, error) {
	if names == "all" {
		return scenarios, nil
	}
	var chosen []scenario
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, s := range scenarios {
			if s.name == name {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no such scenario: %s; -list lists them", name)
		}
	}
	return chosen, nil
}
