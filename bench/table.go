package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// printTable writes ratios (median, and the range they were taken from) and
// absolute medians.
func printTable(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer func() { _ = t.Flush() }() // a terminal that is gone is no one's to tell
	_, _ = fmt.Fprintln(t, "scenario\trounds\trate ×\tCPU ×\tto consume/bytes ×\tp50 ×\tp99 ×"+
		"\tmsg/s raw → flow\tCPU/msg raw → flow\tallocs/msg\tB/msg\tp50\tp99")
	for _, r := range results {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%.0f → %.0f\t%s → %s\t%.1f → %.1f\t%.0f → %.0f\t%s\t%s\n",
			r.name, r.rounds, r.rate, r.cpu, orDash(r.based, r.base), orDash(r.latency, r.p50), orDash(r.latency, r.p99),
			r.raw.rate, r.flow.rate, micros(r.raw.cpu), micros(r.flow.cpu),
			r.raw.allocs, r.flow.allocs, r.raw.bytes, r.flow.bytes,
			r.latencies(p50Of), r.latencies(p99Of))
	}
}

// String is "median (min to max)".
func (s spread) String() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", s.median, s.min, s.max) }

// orDash prints a spread that there is not in every line.
func orDash(there bool, s spread) string {
	if !there {
		return "-"
	}
	return s.String()
}

func (r result) latencies(of func(sample) float64) string {
	if !r.latency {
		return "-"
	}
	return micros(of(r.raw)) + " → " + micros(of(r.flow))
}

// micros prints nanoseconds as microseconds.
func micros(ns float64) string {
	return fmt.Sprintf("%.2fµs", ns/float64(time.Microsecond))
}

// jsonResult is one line of the -json file. Allocations and bytes are amqpflow's, a message.
type jsonResult struct {
	Name      string   `json:"name"`
	RateRatio float64  `json:"rate_ratio"`
	CPURatio  float64  `json:"cpu_ratio"`
	Allocs    float64  `json:"allocs"`
	Bytes     float64  `json:"bytes"`
	P50Ratio  *float64 `json:"p50_ratio"` // null without latency
	P99Ratio  *float64 `json:"p99_ratio"`
	BaseRatio *float64 `json:"base_ratio,omitempty"` // amqpflow's rate to that of its consume/bytes
}

// writeJSON writes the medians for a program to compare.
func writeJSON(file string, results []result) error {
	lines := make([]jsonResult, 0, len(results))
	for _, r := range results {
		line := jsonResult{
			Name: r.name, RateRatio: r.rate.median, CPURatio: r.cpu.median,
			Allocs: r.flow.allocs, Bytes: r.flow.bytes,
		}
		if r.based {
			line.BaseRatio = &r.base.median
		}
		if r.latency {
			line.P50Ratio, line.P99Ratio = &r.p50.median, &r.p99.median
		}
		lines = append(lines, line)
	}
	text, err := json.MarshalIndent(lines, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
