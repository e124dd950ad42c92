package amqpflow

import (
	"testing"
	"time"
)

// SetHandOverAbove changes how long a hold has to be to be the broker's.
func SetHandOverAbove(t *testing.T, d time.Duration) {
	t.Helper()
	old := handOverAbove
	handOverAbove = d
	t.Cleanup(func() { handOverAbove = old })
}

// HandedOver is how many retries that the broker holds are remembered.
func HandedOver(s *Subscription) int { return int(s.handover.pending.Load()) }

// WithJitter draws delays from jitter, which gets each one's bound.
func WithJitter(b *Broker, jitter func(time.Duration) time.Duration) {
	b.c.backoff.Jitter = jitter
}

// WithoutJitter makes the delays between attempts, and before retries, what they
// are at most.
func WithoutJitter(b *Broker) *Broker {
	b.c.backoff.Jitter = func(bound time.Duration) time.Duration { return bound }
	return b
}

// WithBackoff makes the delays between attempts at most longest.
func WithBackoff(b *Broker, longest time.Duration) *Broker {
	b.c.backoff.Max = longest
	return b
}

// Yielded is how many deliveries of a Stream are remembered as not settled.
func Yielded(s *Stream) int { return s.reader.unsettled() }

// SettleUnseen settles a delivery behind the subscription's back: the data plane
// refuses to settle it again.
func SettleUnseen(s *Subscription, id uint32) error {
	return s.receiving().link.Settle(id, stateAccepted)
}
