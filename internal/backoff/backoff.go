// Package backoff says how long to wait before the next attempt at something
// that failed: a delay that doubles, is capped, and is jittered in full, so that
// many who lost the same peer do not come back to it together.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy is how delays grow. Its methods are safe for concurrent use; the
// fields are set before the first call.
type Policy struct {
	Min time.Duration // the bound of the first delay
	Max time.Duration // the bound that it doubles up to

	// Jitter picks the delay, from 0 to bound. Default: a random one.
	Jitter func(bound time.Duration) time.Duration
	// Sleep waits for d, or for the end of ctx, whose error it returns then.
	// Default: by the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Delay returns how long to wait before the attempt that follows failed ones;
// 1 after the first.
func (p *Policy) Delay(failed int) time.Duration {
	bound := p.Bound(failed)
	if p.Jitter != nil {
		return p.Jitter(bound)
	}
	return rand.N(bound + 1) //nolint:gosec // it spreads attempts, and hides nothing
}

// Bound returns what the delay after failed attempts is at most.
func (p *Policy) Bound(failed int) time.Duration {
	bound := p.Min
	for ; failed > 1 && bound < p.Max; failed-- {
		bound *= 2
	}
	return min(bound, p.Max)
}

// Wait waits for d. It returns at once, with its error, when ctx ends.
func (p *Policy) Wait(ctx context.Context, d time.Duration) error {
	if p.Sleep != nil {
		return p.Sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
