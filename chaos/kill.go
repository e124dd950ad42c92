package main

import (
	"context"
	"fmt"
	"time"
)

var kill = scenario{
	name: "kill", about: "kill -9 of a real broker, 2 to 6 s after it works again",
	run: func(ctx context.Context, b *battery, seed uint64) (all []*result) {
		kills := pick(b, 3, 50)
		for i, s := range b.servers("kill", true) {
			l := load{
				Rate: 500, FromAttach: true, Recovery: 5 * time.Second, Patience: 3 * time.Minute,
			}
			all = append(all, b.trial(ctx, "kill", seed+uint64(i), s, l, nil, func(ctx context.Context, t *trial) error {
				return killAgain(ctx, t, s, kills)
			}))
		}
		return all
	},
}

// servers are the real brokers that were given, and can be killed if they have
// to be; those that are missing are told of.
func (b *battery) servers(scenario string, killed bool) (all []*server) {
	usable := func(name string, given broker) bool {
		switch {
		case given.url == "":
			b.missing = append(b.missing, fmt.Sprintf("%s on %s: no URL was given", scenario, name))
		case killed && (given.kill == "" || given.start == ""):
			b.missing = append(b.missing, fmt.Sprintf("%s on %s: no commands that kill and start it were given", scenario, name))
		default:
			return true
		}
		return false
	}
	if usable("rabbitmq", b.rabbit) {
		all = append(all, newRabbitMQ(b.rabbit, quorum), newRabbitMQ(b.rabbit, classic))
	}
	if usable("artemis", b.artemis) {
		all = append(all, newArtemis(b.artemis))
	}
	return all
}

// killAgain kills the broker n times, each time after messages have flowed for
// a while.
func killAgain(ctx context.Context, t *trial, s *server, n int) error {
	for range n {
		if !pause(ctx, t.between(2*time.Second, 6*time.Second)) {
			return nil
		}
		if err := t.outage(ctx, func(ctx context.Context) error {
			if err := s.kill.run(ctx); err != nil {
				return err
			}
			t.fault()
			return s.again(ctx)
		}); err != nil {
			return err
		}
		if err := t.flowing(ctx); err != nil {
			return err
		}
	}
	return nil
}

// again starts the broker that was killed: its port may be taken for a moment
// longer.
func (s *server) again(ctx context.Context) error {
	err := s.start.run(ctx)
	for range 20 {
		if err == nil || !pause(ctx, 100*time.Millisecond) {
			break
		}
		err = s.start.run(ctx)
	}
	return err
}

// outage calls do, while which nothing need move.
func (t *trial) outage(ctx context.Context, do func(context.Context) error) error {
	t.hold.Add(1)
	defer t.hold.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return do(ctx)
}

// flowing waits until messages are handled again.
func (t *trial) flowing(ctx context.Context) error {
	for before := t.ledger.attempts.Load(); t.ledger.attempts.Load() == before; {
		if !pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}
