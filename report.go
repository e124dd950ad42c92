package amqpflow

import (
	"sync/atomic"
	"time"
)

// ShutdownReport is what a Shutdown did with what was under way.
type ShutdownReport struct {
	After     time.Duration // how long it took
	Completed int           // deliveries that a handler, or a Stream's reader, had, and that were settled
	Retried   int           // held retries that were settled before their time
	Released  int           // deliveries that no handler had begun, given back uncounted
	// Abandoned counts deliveries that a handler, or a Stream's reader, had and
	// did not settle in time, that of a handler which called Shutdown included.
	// They went back to the peer unsettled, which delivers them again.
	Abandoned int
	Uncertain int   // publishes whose outcome is not known
	Err       error // what Shutdown returned
}

// stopCounts count a subscription's deliveries for the report.
type stopCounts struct {
	refused  atomic.Uint64 // rejected before any handler
	held     atomic.Uint64 // settled when their hold ended
	released atomic.Uint64 // by releaseHeld

	begun settledSoFar // when the stop began; guarded by the subscription's mu
}

// settledSoFar are the stopCounts, and the count of all settlements, at one
// moment.
type settledSoFar struct{ all, refused, held, released uint64 }

func (s *Subscription) settledSoFar() settledSoFar {
	n := settledSoFar{refused: s.counts.refused.Load(), held: s.counts.held.Load(), released: s.counts.released.Load()}
	for i := range s.outcomes {
		n.all += s.outcomes[i].Load()
	}
	return n
}

// addTo adds what the stop did with the subscription's deliveries. It is called
// when the link is gone, so that nothing is settled any more.
func (s *Subscription) addTo(report *ShutdownReport) {
	s.mu.Lock()
	from := s.counts.begun
	s.mu.Unlock()
	to := s.settledSoFar()
	retried, released := to.held-from.held, to.released-from.released
	report.Retried += int(retried)
	report.Released += int(released)
	report.Completed += int(to.all - from.all - retried - released - (to.refused - from.refused))
	for _, w := range s.workers {
		report.Abandoned += w.unsettled()
	}
	report.Abandoned += s.reader.unsettled()
}

// attributes are the report's in the log.
func (r *ShutdownReport) attributes() []any {
	return append([]any{
		"after", r.After, "completed", r.Completed, "retried", r.Retried, "released", r.Released,
		"abandoned", r.Abandoned, "uncertain", r.Uncertain,
	}, reason(r.Err)...)
}
