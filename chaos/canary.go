package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// canary measures how late the machine itself is, which cannot be held against
// the library: by what a timer of its own is late, and, where the system tells,
// for how long threads of the process waited for a processor.
type canary struct {
	mu     sync.Mutex
	late   []lateness
	waited []waiting
	due    time.Time // when it is to wake next; zero unless it watches
}

type lateness struct {
	at time.Time
	by time.Duration
}

// waiting is how long the process's threads have waited for a processor.
type waiting struct {
	at  time.Time
	sum time.Duration
}

const (
	canaryPeriod = 5 * time.Millisecond
	canaryNoise  = 2 * time.Millisecond
	canaryEvery  = 4           // periods: what asks the system is not asked each time
	canaryMemory = time.Minute // for which it is remembered
)

// watch runs until ctx ends.
func (c *canary) watch(ctx context.Context) {
	for n := 0; ; n++ {
		due := time.Now().Add(canaryPeriod)
		c.expect(due, n%canaryEvery == 0)
		if !pause(ctx, canaryPeriod) {
			return
		}
		if by := time.Since(due); by > canaryNoise {
			c.mu.Lock()
			c.late = append(c.late, lateness{at: due, by: by})
			c.mu.Unlock()
		}
	}
}

// expect remembers when the canary is to wake, and what there is to know now.
func (c *canary) expect(due time.Time, ask bool) {
	var w waiting
	if ask {
		w = waiting{at: time.Now(), sum: runDelay()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = due
	if !ask {
		return
	}
	c.waited = append(c.waited, w)
	old := w.at.Add(-canaryMemory)
	c.waited = slices.DeleteFunc(c.waited, func(w waiting) bool { return w.at.Before(old) })
	c.late = slices.DeleteFunc(c.late, func(l lateness) bool { return l.at.Before(old) })
}

// runDelay is how long the threads that the process has now have waited for a
// processor; 0 where nobody can tell.
func runDelay() (sum time.Duration) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat") // the pattern is right
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		var running, waiting int64
		if _, err := fmt.Sscan(string(b), &running, &waiting); err == nil {
			sum += time.Duration(waiting)
		}
	}
	return sum
}

// lateBetween is how late the machine was in a span of time that ends now.
func (c *canary) lateBetween(from, to time.Time) time.Duration {
	asked := runDelay()
	c.mu.Lock()
	defer c.mu.Unlock()
	var starved time.Duration
	for _, w := range slices.Backward(c.waited) {
		if w.at.Before(from) {
			starved = asked - w.sum
			break
		}
	}
	return max(c.lateLocked(from, to), starved)
}

// lateLocked is by how much the canary itself was late, all in all: a call may
// need to be scheduled more than once before it returns. A canary that has not
// woken yet is late, too.
func (c *canary) lateLocked(from, to time.Time) (sum time.Duration) {
	if !c.due.IsZero() {
		sum = overlap(from, to, c.due, to)
	}
	for _, l := range slices.Backward(c.late) {
		end := l.at.Add(l.by)
		if end.Before(from) {
			break
		}
		sum += overlap(from, to, l.at, end)
	}
	return sum
}

// overlap is how much of the second span is in the first.
func overlap(from, to, begin, end time.Time) time.Duration {
	if begin.Before(from) {
		begin = from
	}
	if end.After(to) {
		end = to
	}
	return max(end.Sub(begin), 0)
}
