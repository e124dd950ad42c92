package main

import (
	"sync"
	"time"
)

// recovery measures how long after the peer accepts again the first message
// is handled: from the dial that succeeded, or, where that is no measure, from
// the attach.
type recovery struct {
	fromAttach bool

	mu     sync.Mutex
	dialed time.Time // the last dial; zero once a link of it was attached
	since  time.Time // zero while nothing is waited for
	worst  time.Duration
	times  int
}

func (r *recovery) dial(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialed = at
}

// attached is when the peer has accepted a link.
func (r *recovery) attached(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.since.IsZero() {
		return
	}
	r.since = at
	if !r.fromAttach && !r.dialed.IsZero() {
		r.since = r.dialed
	}
	r.dialed = time.Time{}
}

func (r *recovery) handled(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return
	}
	r.worst = max(r.worst, at.Sub(r.since))
	r.times++
	r.since = time.Time{}
}

// forget gives up what is waited for: the link was lost again.
func (r *recovery) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Time{}
}

// result is the longest of them, and how many there were.
func (r *recovery) result() (time.Duration, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.worst, r.times
}
