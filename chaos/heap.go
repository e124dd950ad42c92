package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"
)

// heapWatch samples the live heap beyond what the battery itself keeps.
type heapWatch struct {
	keeps   func() int64 // what ledger and in-process broker are known to hold
	base    int64
	samples []int64
}

const liveHeap = "/gc/heap/live:bytes"

func live() int64 {
	s := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

func newHeapWatch(keeps func() int64) *heapWatch {
	runtime.GC()
	return &heapWatch{keeps: keeps, base: live()}
}

// watch runs until ctx ends.
func (h *heapWatch) watch(ctx context.Context) {
	for pause(ctx, 250*time.Millisecond) {
		h.samples = append(h.samples, live()-h.base-h.keeps())
	}
}

func (h *heapWatch) most() int64 {
	if len(h.samples) == 0 {
		return 0
	}
	return max(slices.Max(h.samples), 0)
}

// breach says what is wrong: more than the bound, or, where there are samples
// enough to say so, more in the last quarter than in the second one.
func (h *heapWatch) breach(bound int64) string {
	if most := h.most(); most > bound {
		return fmt.Sprintf("live heap of %d MiB, the bound is %d MiB", most>>20, bound>>20)
	}
	n := len(h.samples)
	if n < 80 {
		return ""
	}
	before, after := median(h.samples[n/4:n/2]), median(h.samples[3*n/4:])
	if after > before+before/2+16<<20 {
		return fmt.Sprintf("live heap grows: %d MiB in the second quarter, %d MiB in the last", before>>20, after>>20)
	}
	return ""
}

func median(s []int64) int64 {
	s = slices.Clone(s)
	slices.Sort(s)
	return s[len(s)/2]
}
