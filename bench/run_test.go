package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakePeer counts the places that are in use.
type fakePeer struct{ made, removed int }

func (f *fakePeer) broker() bool     { return false }
func (f *fakePeer) describe() string { return "fake" }
func (f *fakePeer) close() error     { return nil }
func (f *fakePeer) place(context.Context, scenario) (place, error) {
	f.made++
	return place{remove: func(context.Context) error { f.removed++; return nil }}, nil
}

// fakeSide notes its name, and fails when told to.
type fakeSide struct {
	name   string
	order  *[]string
	counts *[]int // of the scenarios; nil: not noted
	failOn string // scenario
	err    error
}

func (f fakeSide) consume(_ context.Context, _ place, s scenario, m *meter) error {
	*f.order = append(*f.order, f.name)
	if f.counts != nil {
		*f.counts = append(*f.counts, s.count)
	}
	for range s.warm + s.count {
		m.tick()
	}
	if s.name == f.failOn {
		return f.err
	}
	return nil
}

func (f fakeSide) publish(ctx context.Context, p place, s scenario, m *meter) error {
	return f.consume(ctx, p, s, m)
}

func (f fakeSide) pipeline(ctx context.Context, p place, s scenario, m *meter) error {
	return f.consume(ctx, p, s, m)
}

func (f fakeSide) reply(ctx context.Context, p place, s scenario, m *meter) error {
	return f.consume(ctx, p, s, m)
}

func TestRunner_alternatesAndDropsTheFirstRound(t *testing.T) {
	var order []string
	p := &fakePeer{}
	r := runner{peer: p, raw: fakeSide{name: "raw", order: &order}, flow: fakeSide{name: "flow", order: &order}}
	results, err := r.runAll(t.Context(), []scenario{{name: "s", warm: 1, count: 10, rounds: 3}})
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.Equal(t, 3, results[0].rounds)
	assert.Equal(t, []string{"raw", "flow", "flow", "raw", "raw", "flow", "flow", "raw"}, order)
	assert.Equal(t, fakePeer{made: 8, removed: 8}, *p)
}

func TestRunner_runsTheBaseInEveryRound(t *testing.T) {
	var order []string
	p := &fakePeer{}
	var counts []int
	r := runner{
		peer: p, raw: fakeSide{name: "raw", order: &order, counts: &counts},
		flow: fakeSide{name: "flow", order: &order, counts: &counts},
	}
	res, err := r.run(t.Context(), scenario{name: "s", base: bytesName, warm: 1, count: 10, rounds: 1})
	require.NoError(t, err)
	assert.Equal(t, []string{"raw", "flow", "flow", "flow", "flow", "raw"}, order)
	assert.Equal(t, []int{10, 50, 300_000, 300_000, 50, 10}, counts, "what is compared with its base is longer")
	assert.True(t, res.based)
	assert.Positive(t, res.base.median)
}

func TestRunner_keepsWhatWasMeasuredBeforeAnError(t *testing.T) {
	var order []string
	p := &fakePeer{}
	broken := errors.New("broken")
	r := runner{
		peer: p, rounds: 1,
		raw:  fakeSide{name: "raw", order: &order},
		flow: fakeSide{name: "flow", order: &order, failOn: "bad", err: broken},
	}
	results, err := r.runAll(t.Context(), []scenario{
		{name: "good", warm: 1, count: 10},
		{name: "bad", warm: 1, count: 10},
	})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "bad: ", "names the scenario")
	require.Len(t, results, 1)
	assert.Equal(t, "good", results[0].name)
	assert.Equal(t, p.made, p.removed, "a failed run's place is removed too")
}
