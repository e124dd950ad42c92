package amqpflow

import "fmt"

// State is where a subscription is in its life.
type State uint8

const (
	// Registered means that nothing was sent yet.
	Registered State = iota
	// Attaching means that its link is being made, or made again after a loss;
	// Err says which loss, or refusal.
	Attaching
	// Attached means that deliveries may come.
	Attached
	// Paused means that it is attached, and Pause lets no delivery come.
	Paused
	// Draining means that it is being shut down.
	Draining
	// Ended means that it is over; Err says why.
	Ended
)

var stateNames = [...]string{"registered", "attaching", "attached", "paused", "draining", "ended"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Stats counts what a subscription did and shows what it holds.
type Stats struct {
	Credit   int    // deliveries that the peer may still send
	Held     int    // received, and not yet given to a handler
	Running  int    // given to a handler that has not returned
	Retrying int    // failed, and held for their backoff
	Received uint64 // deliveries that came, unreadable ones included
	// Reattached counts how often the link was attached again after a loss.
	Reattached uint64
	// How they were settled, by outcome.
	Accepted, Rejected, Released, Modified uint64
}

// Stats returns the subscription's counters and what it holds at the moment.
func (s *Subscription) Stats() Stats {
	st := Stats{
		Received:   s.received.Load(),
		Reattached: s.reattached.Load(),
		Accepted:   s.outcomes[Accepted].Load(),
		Rejected:   s.outcomes[Rejected].Load(),
		Released:   s.outcomes[Released].Load(),
		Modified:   s.outcomes[Modified].Load(),
	}
	st.Retrying = s.holds.len()
	for _, in := range s.inboxes {
		st.Held += in.len()
	}
	for _, w := range s.workers {
		st.Running += w.busy()
	}
	if r := s.receiving(); r != nil && !isClosed(r.link.Done()) {
		st.Credit, _ = r.link.Credit()
		queued := r.link.Queued()
		st.Held += queued
		st.Received += uint64(queued)
	}
	return st
}
