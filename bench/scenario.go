package main

import (
	"fmt"
	"slices"
	"strings"
)

// defaultCredit is amqpflow's default window. Scenarios that are not about
// the window give both sides this one: go-amqp's own default is 1.
const defaultCredit = 256

// bytesName is the scenario that others are compared with.
const bytesName = "consume/bytes"

// work is a kind of work.
type work uint8

const (
	consume  work = iota // receive and accept
	publish              // send, one after the other, each confirmed
	pipeline             // send, inFlight of them unconfirmed
	reply                // receive a request, send the reply, accept
)

// consumes reports whether there have to be messages for it.
func (w work) consumes() bool { return w == consume || w == reply }

// scenario is one line of the table: a kind of work and how much of it.
type scenario struct {
	name     string
	work     work
	json     bool   // bodies are JSON documents, decoded into an order
	tls      bool   // needs amqps: the source only
	credit   int    // of the receiving link
	workers  int    // handlers at once; 0: one
	lanes    int    // one handler for each, deliveries of one key in one lane; 0: none
	batch    int    // deliveries a call of the handler; 0: one
	inFlight int    // of a pipeline
	base     string // the scenario whose rate with amqpflow this one's is compared with, too

	warm   int // messages before the clock starts
	count  int // messages in one timed run against the source
	broker int // the same against a broker, which has to be filled first
	rounds int // counted rounds; the first one, dropped, is extra
}

// scenarios is the whole table. The counts make a timed run long enough to
// outlast a garbage collection cycle and a scheduler's time slice, and the
// whole table short enough to be repeated.
var scenarios = []scenario{
	{name: bytesName, credit: defaultCredit, warm: 2_000, count: 60_000, broker: 8_000, rounds: 9},
	{name: "consume/json", credit: defaultCredit, json: true, warm: 2_000, count: 30_000, broker: 25_000, rounds: 9},
	{name: "consume/credit=1", credit: 1, warm: 200, count: 10_000, broker: 1_500, rounds: 9},
	{name: "consume/credit=10", credit: 10, warm: 500, count: 20_000, broker: 4_000, rounds: 9},
	{name: "consume/credit=100", credit: 100, warm: 1_000, count: 40_000, broker: 3_000, rounds: 9},
	{name: "consume/credit=1000", credit: 1000, warm: 3_000, count: 60_000, broker: 8_000, rounds: 9},
	{name: "consume/tls", credit: defaultCredit, tls: true, warm: 2_000, count: 40_000, rounds: 9},
	{name: "consume/workers=4", workers: 4, base: bytesName, credit: defaultCredit, warm: 2_000, count: 30_000, rounds: 9},
	{name: "consume/lanes=16", lanes: 16, base: bytesName, credit: defaultCredit, warm: 2_000, count: 30_000, rounds: 9},
	{name: "consume/batch=100", batch: 100, base: bytesName, credit: defaultCredit, warm: 2_000, count: 30_000, rounds: 9},
	{name: "publish/serial", work: publish, warm: 100, count: 2_000, broker: 300, rounds: 17},
	{name: "publish/inflight=8", work: pipeline, inFlight: 8, warm: 500, count: 15_000, broker: 1_500, rounds: 9},
	{name: "publish/inflight=128", work: pipeline, inFlight: 128, warm: 2_000, count: 30_000, broker: 8_000, rounds: 9},
	{name: "publish/inflight=512", work: pipeline, inFlight: 512, warm: 2_000, count: 30_000, broker: 10_000, rounds: 9},
	{name: "publish/tls", work: pipeline, inFlight: 128, tls: true, warm: 2_000, count: 20_000, rounds: 9},
	{name: "reply/workers=1", work: reply, workers: 1, credit: 32, warm: 500, count: 5_000, broker: 200, rounds: 9},
	{name: "reply/workers=32", work: reply, workers: 32, credit: defaultCredit, warm: 1_000, count: 20_000, broker: 3_000, rounds: 9},
}

// longer is the scenario with more messages, for two runs that are as fast as
// each other and to be compared with each other.
func (s scenario) longer() scenario {
	s.count *= 5
	return s
}

// named returns the scenario of this name; there is one.
func named(name string) scenario {
	return scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
}

// chooseScenarios returns those that can run against the peer, or the one
// that is named, with count set to what the peer can stand.
func chooseScenarios(broker bool, only string) ([]scenario, error) {
	var chosen []scenario
	for _, s := range scenarios {
		if only != "" && s.name != only {
			continue
		}
		if broker {
			s.count, s.warm = s.broker, min(s.warm, s.broker/5)
		}
		if s.count > 0 {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no scenario %q for this peer; there are %s", only, scenarioNames())
	}
	return chosen, nil
}

// scenarioNames lists every name, for an error's text.
func scenarioNames() string {
	names := make([]string, 0, len(scenarios))
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}
