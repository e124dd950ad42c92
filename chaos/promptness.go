package main

import (
	"fmt"
	"sync"
	"time"
)

// allowance is by how much a call may outlive its context.
const allowance = 100 * time.Millisecond

// promptness holds every call that has a deadline against it.
type promptness struct {
	canary *canary

	mu    sync.Mutex
	worst time.Duration
	late  []string
}

// returned notes that a call has returned at this moment.
func (p *promptness) returned(call string, deadline time.Time) {
	now := time.Now()
	over := now.Sub(deadline)
	if over <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.worst = max(p.worst, over)
	if over <= allowance {
		return
	}
	if excuse := p.canary.lateBetween(deadline, now); over > allowance+excuse && len(p.late) < maxExamples {
		p.late = append(p.late, fmt.Sprintf("%s outlived its context by %v, the machine being late by %v", call, over, excuse))
	}
}

func (p *promptness) breaches() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}
