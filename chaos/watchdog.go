package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

var errStuck = errors.New("no progress for 20 s with work to do")

const (
	stuckAfter  = 20 * time.Second
	longestWait = 30 * time.Second // between two tries to connect
)

// outstanding is how many confirmed messages are still to be handled.
func (t *trial) outstanding() int64 {
	n := t.ledger.outstanding()
	if n > 0 && t.load.Unseen != nil {
		n -= t.load.Unseen(t)
	}
	return n
}

// watchdog ends a run in which nothing moves, and writes down what everybody
// stands in.
func (t *trial) watchdog(ctx context.Context, stop context.CancelCauseFunc) {
	last, since := int64(-1), time.Now()
	for pause(ctx, 500*time.Millisecond) {
		now := t.ledger.progress.Load()
		if t.hold.Load() > 0 { // behind it comes the wait that the backoff has drawn
			last, since = now, time.Now().Add(longestWait)
			continue
		}
		if now != last {
			last, since = now, time.Now()
			continue
		}
		if time.Since(since) < stuckAfter {
			continue
		}
		t.dump()
		stop(errStuck)
		return
	}
}

func (t *trial) dump() {
	name := fmt.Sprintf("%s/chaos-%s-%d.stacks", os.TempDir(), t.scenario, t.seed)
	buf := make([]byte, 16<<20)
	buf = buf[:runtime.Stack(buf, true)]
	if err := os.WriteFile(name, buf, 0o600); err == nil {
		t.breach("stuck: every goroutine is in %s; ready: %v", name, t.broker.Ready())
	}
}
