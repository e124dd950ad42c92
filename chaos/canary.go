package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// canary measures how late the machine itself is: what a timer of its own is
// late by cannot be held against the library.
type canary struct {
	mu   sync.Mutex
	late []lateness
}

type lateness struct {
	at time.Time
	by time.Duration
}

const (
	canaryPeriod = 5 * time.Millisecond
	canaryNoise  = 2 * time.Millisecond
)

// watch runs until ctx ends.
func (c *canary) watch(ctx context.Context) {
	for {
		due := time.Now().Add(canaryPeriod)
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

// lateBetween is the largest lateness in a span of time.
func (c *canary) lateBetween(from, to time.Time) (most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range slices.Backward(c.late) {
		if l.at.Add(l.by).Before(from) {
			break
		}
		if !l.at.After(to) {
			most = max(most, l.by)
		}
	}
	return most
}
