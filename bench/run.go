package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// runTimeout bounds one run of one side, preparation included.
const runTimeout = 2 * time.Minute

// side is one of the two programs under comparison. Each call opens its own
// connection, does the scenario's work until the meter is done, and closes.
type side interface {
	consume(ctx context.Context, p place, s scenario, m *meter) error
	publish(ctx context.Context, p place, s scenario, m *meter) error
	pipeline(ctx context.Context, p place, s scenario, m *meter) error
	reply(ctx context.Context, p place, s scenario, m *meter) error
}

// do is the scenario's kind of work.
func do(ctx context.Context, side side, p place, s scenario, m *meter) error {
	switch s.work {
	case publish:
		m.keepLatencies()
		return side.publish(ctx, p, s, m)
	case pipeline:
		return side.pipeline(ctx, p, s, m)
	case reply:
		return side.reply(ctx, p, s, m)
	default:
		return side.consume(ctx, p, s, m)
	}
}

// runner measures scenarios.
type runner struct {
	peer      peer
	raw, flow side
	rounds    int // 0: the scenario's own
}

// runAll returns what was measured up to the first error.
func (r runner) runAll(ctx context.Context, chosen []scenario) ([]result, error) {
	var results []result
	for _, s := range chosen {
		res, err := r.run(ctx, s)
		if err != nil {
			return results, fmt.Errorf("%s: %w", s.name, err)
		}
		results = append(results, res)
	}
	return results, nil
}

// run measures one scenario. The first round is dropped: it pays for growing
// heaps, cold caches and a broker's first touch.
func (r runner) run(ctx context.Context, s scenario) (result, error) {
	rounds := s.rounds
	if r.rounds > 0 {
		rounds = r.rounds
	}
	var pairs []pair
	for round := range rounds + 1 {
		p, err := r.round(ctx, s, round%2 == 1)
		if err != nil {
			return result{}, err
		}
		if round > 0 {
			pairs = append(pairs, p)
		}
	}
	return resultOf(s, pairs), nil
}

// round measures both sides, one after the other, and amqpflow's base if the
// scenario has one. Rounds alternate who goes first, so that neither always
// finds the warmer machine.
func (r runner) round(ctx context.Context, s scenario, reversed bool) (p pair, err error) {
	type turn struct {
		scenario
		side side
		into *sample
	}
	order := []turn{{s, r.raw, &p.raw}, {s, r.flow, &p.flow}}
	if s.base != "" {
		order[1].scenario = s.longer()
		order = append(order, turn{named(s.base).longer(), r.flow, &p.base})
	}
	if reversed {
		slices.Reverse(order)
	}
	for _, t := range order {
		if *t.into, err = r.one(ctx, t.scenario, t.side); err != nil {
			return pair{}, err
		}
	}
	return p, nil
}

// one measures one side in a place of its own.
func (r runner) one(ctx context.Context, s scenario, side side) (_ sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	p, err := r.peer.place(ctx, s)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, p.remove(context.WithoutCancel(ctx))) }()
	runtime.GC() // the other side's garbage is not this side's work
	m := newMeter(s.warm, s.count)
	if err := do(ctx, side, p, s, m); err != nil {
		return sample{}, fmt.Errorf("%T: %w", side, err)
	}
	return m.sample(), nil
}
