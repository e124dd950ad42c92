package amqpflow

import "time"

// WithoutJitter makes the delays between attempts what they are at most.
func WithoutJitter(b *Broker) *Broker {
	b.c.backoff.Jitter = func(bound time.Duration) time.Duration { return bound }
	return b
}
