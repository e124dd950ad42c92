package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// add makes r the sum of two results of one scenario on one broker.
func (r *result) add(o *result) {
	v, w := &r.verdict, &o.verdict
	v.published += w.published
	v.confirmed += w.confirmed
	v.refused += w.refused
	v.notSent += w.notSent
	v.uncertain += w.uncertain
	v.attempts += w.attempts
	v.again += w.again
	v.queued += w.queued
	v.dead += w.dead
	v.lost += w.lost
	v.phantom += w.phantom
	v.duplicates += w.duplicates
	r.runs += o.runs
	r.faults += o.faults
	r.recoveries += o.recoveries
	r.worst = max(r.worst, o.worst)
	r.heap = max(r.heap, o.heap)
	r.unsettled = max(r.unsettled, o.unsettled)
	r.took += o.took
	for _, b := range o.breaches {
		r.breaches = append(r.breaches, fmt.Sprintf("seed %d: %s", o.seed, b))
	}
}

const heading = "scenario\tbroker\tseed\truns\tfaults\tpublished\tconfirmed\trefused\tnot sent\tuncertain\t" +
	"attempts\tagain\tleft\tdead\tlost\tphantom\tduplicates\trecovered\tslowest\theap\ttook\t"

// printTable writes a row for each result, and what was breached under it.
func printTable(w io.Writer, results []*result) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, heading)
	for _, r := range results {
		v := &r.verdict
		fmt.Fprintf(tab, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%d MiB\t%v\t%s\n",
			r.scenario, r.peer, r.seed, r.runs, r.faults, v.published, v.confirmed, v.refused, v.notSent, v.uncertain,
			v.attempts, v.again, v.queued, v.dead, v.lost, v.phantom, v.duplicates, r.recoveries,
			r.worst.Round(time.Millisecond), r.heap>>20, r.took.Round(100*time.Millisecond), r.mark())
	}
	_ = tab.Flush() // the writer is the terminal
	for _, r := range results {
		for _, b := range r.breaches {
			fmt.Fprintf(w, "BREACH %s on %s, seed %d: %s\n", r.scenario, r.peer, r.seed, b)
		}
	}
}

func (r *result) mark() string {
	if len(r.breaches) > 0 {
		return "BREACHED"
	}
	return "ok"
}
