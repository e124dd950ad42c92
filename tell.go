package amqpflow

import (
	"context"
	"time"
)

// patience is how long an observer is waited for once what it is told of is over.
const patience = 500 * time.Millisecond

// telling calls an observer in a goroutine of its own, and returns a channel that
// is closed when that has ended, or soon after life has: what it calls may be
// Shutdown, or Close, which waits for the goroutine that tells.
func (c *core) telling(life context.Context, observe func()) <-chan struct{} {
	told, cancel := endingAfter(life, patience)
	c.enders.Go(func() {
		defer cancel()
		observe()
	})
	return told.Done()
}

// tell calls an observer and waits for it, as telling says.
func (c *core) tell(life context.Context, observe func()) { <-c.telling(life, observe) }

func (s *Subscription) tellState(state State, err error) {
	s.c.tell(s.life, func() { s.c.observe.state(s, state, err) })
}

func (s *Subscription) tellError(err error) {
	s.c.tell(s.life, func() { s.c.observe.error(err) })
}
