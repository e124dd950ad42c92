package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/amqpflow/amqpflow/amqptest"
)

// scenario is one row of the battery: a kind of fault, in a short and a long
// form.
type scenario struct {
	name, about string
	// faultless says that the load itself is the test. Every other run in which
	// nothing was injected has failed.
	faultless bool
	// run returns a result for each broker that it was run on.
	run func(ctx context.Context, b *battery, seed uint64) []*result
}

// battery is what the scenarios share.
type battery struct {
	long            bool
	soak            time.Duration // instead of what the form says
	canary          *canary
	artemis, rabbit broker
	out             io.Writer
	results         []*result
	seed            uint64
	missing         []string // scenarios left out, and why
}

// broker is a real one: its URL and what starts, kills and controls it.
type broker struct {
	url              string
	start, kill, ctl command
}

// pick is the amount of the form that runs.
func pick[T any](b *battery, short, long T) T {
	if b.long {
		return long
	}
	return short
}

// play runs scenarios with one seed.
func (b *battery) play(ctx context.Context, scenarios []scenario, seed uint64) {
	for _, s := range scenarios {
		if ctx.Err() != nil {
			return
		}
		for _, r := range s.run(ctx, b, seed) {
			if r.faults == 0 && !s.faultless {
				r.breaches = append(r.breaches, "no fault was injected")
			}
			b.results = append(b.results, r)
			printTable(b.out, []*result{r})
		}
	}
}

// failed says whether an invariant was breached.
func (b *battery) failed() bool {
	for _, r := range b.results {
		if len(r.breaches) > 0 {
			return true
		}
	}
	return false
}

// faulter injects the faults of one run; it ends when it has done so, or with
// ctx.
type faulter func(ctx context.Context, t *trial) error

// trial runs a load on a broker. prepare, if set, is called before the client
// connects.
func (b *battery) trial(ctx context.Context, name string, seed uint64, p peer, l load, prepare func(*trial), f faulter) *result {
	t, err := newTrial(ctx, name, seed, p, l, "")
	if err != nil {
		return failure(name, seed, p, err)
	}
	if prepare != nil {
		prepare(t)
	}
	return t.run(ctx, b.canary, f)
}

// failure is the result of a run that could not begin.
func failure(name string, seed uint64, p peer, err error) *result {
	return &result{scenario: name, peer: p.product(), seed: seed, runs: 1, breaches: []string{err.Error()}}
}

// inProcess calls do with a new in-process broker, and adds what clients broke
// of the protocol.
func (b *battery) inProcess(opts amqptest.Options, do func(*inProcess) *result) *result {
	return b.inProcessBut("", opts, do)
}

// inProcessBut is inProcess for faults that make clients break a rule.
func (b *battery) inProcessBut(rule string, opts amqptest.Options, do func(*inProcess) *result) *result {
	p := newInProcess(opts)
	left := newResidue()
	r := do(p)
	if err := p.close(); err != nil {
		for broken := range strings.SplitSeq(err.Error(), "\n") {
			if rule == "" || !strings.Contains(broken, " broke "+rule+" ") {
				r.breaches = append(r.breaches, "protocol: "+broken)
			}
		}
	}
	r.breaches = append(r.breaches, left.breaches(context.Background())...)
	return r
}

// sum adds results of one scenario on one broker up.
func sum(results ...*result) *result {
	total := *results[0]
	total.breaches = nil
	for _, bad := range results[0].breaches {
		total.breaches = append(total.breaches, fmt.Sprintf("seed %d: %s", results[0].seed, bad))
	}
	for _, r := range results[1:] {
		total.add(r)
	}
	return &total
}

// repeat runs do n times with seeds of its own, and adds up.
func repeat(ctx context.Context, n int, seed uint64, do func(seed uint64) *result) *result {
	var all []*result
	for i := range n {
		all = append(all, do(seed+uint64(i)))
		if ctx.Err() != nil {
			break
		}
	}
	total := sum(all...)
	total.seed = seed
	return total
}

// between is a random time.
func (t *trial) between(from, to time.Duration) time.Duration {
	return from + time.Duration(t.rng.Int64N(int64(to-from)))
}
