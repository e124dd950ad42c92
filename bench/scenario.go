package main

import (
	"fmt"
	"strings"
)

// defaultCredit is amqpflow's default window. Scenarios that are not about
// the window give both sides this one: go-amqp's own default is 1.
const defaultCredit = 256

// scenario is one line of the table: a kind of work and how much of it.
type scenario struct {
	name    string
	publish bool // confirmed sends one after the other; else receive and accept
	json    bool // bodies are JSON documents, decoded into an order
	tls     bool // needs amqps: the source only
	credit  int  // of the receiving link

	warm   int // messages before the clock starts
	count  int // messages in one timed run against the source
	broker int // the same against a broker, which has to be filled first
	rounds int // counted rounds; the first one, dropped, is extra
}

// scenarios is the whole table. The counts make a timed run long enough to
// outlast a garbage collection cycle and a scheduler's time slice, and the
// whole table short enough to be repeated.
var scenarios = []scenario{
	{name: "consume/bytes", credit: defaultCredit, warm: 2_000, count: 60_000, broker: 8_000, rounds: 9},
	{name: "consume/json", credit: defaultCredit, json: true, warm: 2_000, count: 30_000, broker: 25_000, rounds: 9},
	{name: "consume/credit=1", credit: 1, warm: 200, count: 10_000, broker: 1_500, rounds: 9},
	{name: "consume/credit=10", credit: 10, warm: 500, count: 20_000, broker: 4_000, rounds: 9},
	{name: "consume/credit=100", credit: 100, warm: 1_000, count: 40_000, broker: 6_000, rounds: 9},
	{name: "consume/credit=1000", credit: 1000, warm: 3_000, count: 60_000, broker: 8_000, rounds: 9},
	{name: "consume/tls", credit: defaultCredit, tls: true, warm: 2_000, count: 40_000, rounds: 9},
	{name: "publish/serial", publish: true, warm: 100, count: 2_000, broker: 300, rounds: 17},
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
			s.count = s.broker
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
