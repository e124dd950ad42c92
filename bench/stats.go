package main

import (
	"math"
	"slices"
)

// spread is a median and what it was taken from.
type spread struct{ median, min, max float64 }

// spreadOf describes values; all fields are NaN if there are none.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	return spread{median: medianOf(sorted), min: sorted[0], max: sorted[len(sorted)-1]}
}

// medianOf takes at least one value, in order.
func medianOf(sorted []float64) float64 {
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// percentile is the smallest value that at least p percent of the values do
// not exceed (nearest rank). It takes at least one value, in order.
func percentile[T any](sorted []T, p float64) T {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// pair is one round: both sides, and amqpflow's base scenario if there is one,
// measured within the same seconds.
type pair struct{ raw, flow, base sample }

// ratios divides flow by raw within each round. The median of paired ratios
// is insensitive to a machine that is slower in some rounds than in others,
// which the ratio of two medians is not.
func ratios(pairs []pair, of func(sample) float64) spread {
	values := make([]float64, 0, len(pairs))
	for _, p := range pairs {
		values = append(values, of(p.flow)/of(p.raw))
	}
	return spreadOf(values)
}

// medianSample takes the median of every figure by itself.
func medianSample(samples []sample) sample {
	median := func(of func(sample) float64) float64 {
		values := make([]float64, 0, len(samples))
		for _, s := range samples {
			values = append(values, of(s))
		}
		return spreadOf(values).median
	}
	return sample{
		rate: median(rateOf), cpu: median(cpuOf),
		allocs: median(func(s sample) float64 { return s.allocs }),
		bytes:  median(func(s sample) float64 { return s.bytes }),
		p50:    median(p50Of), p99: median(p99Of),
	}
}

// toBase is ratios of amqpflow's rate to that of its base.
func toBase(pairs []pair) spread {
	values := make([]float64, 0, len(pairs))
	for _, p := range pairs {
		values = append(values, p.flow.rate/p.base.rate)
	}
	return spreadOf(values)
}

func rateOf(s sample) float64 { return s.rate }
func cpuOf(s sample) float64  { return s.cpu }
func p50Of(s sample) float64  { return s.p50 }
func p99Of(s sample) float64  { return s.p99 }

// result is one finished line of the table. Ratios are amqpflow to raw.
type result struct {
	name      string
	rounds    int
	latency   bool
	rate, cpu spread
	p50, p99  spread // set only if latency
	based     bool   // compared with another scenario, too
	base      spread // amqpflow's rate to that of amqpflow there; set only if based
	raw, flow sample // medians of the absolute figures
}

// resultOf reduces the counted rounds of a scenario.
func resultOf(s scenario, pairs []pair) result {
	var raw, flow []sample
	for _, p := range pairs {
		raw, flow = append(raw, p.raw), append(flow, p.flow)
	}
	r := result{
		name: s.name, rounds: len(pairs), latency: s.work == publish, based: s.base != "",
		rate: ratios(pairs, rateOf), cpu: ratios(pairs, cpuOf),
		raw: medianSample(raw), flow: medianSample(flow),
	}
	if r.based {
		r.base = toBase(pairs)
	}
	if r.latency {
		r.p50, r.p99 = ratios(pairs, p50Of), ratios(pairs, p99Of)
	}
	return r
}
