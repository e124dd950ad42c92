package amqptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Idle returns nil once the server is at rest: nothing is queued but dead
// letters that nobody receives, where a message that is scheduled for later
// counts as queued; consumers have settled what they were given; publishers
// have been answered, and have settled where that is for them to do; no frame
// and no message is half received; and everything for the clients is written.
// On a server that nobody has sent anything to that is at once. What a client
// has not written yet the server cannot know of.
//
// It returns ctx's error with what is still going on if that ends first,
// ErrClosed after Close, and a bad option of the server.
func (s *Server) Idle(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	w := make(chan struct{})
	s.lock()
	s.waiters = append(s.waiters, w)
	s.unlock()
	select {
	case <-w:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		s.waiters = slices.DeleteFunc(s.waiters, func(o chan struct{}) bool { return o == w })
		busy := s.busyLocked()
		s.mu.Unlock()
		return fmt.Errorf("amqptest: not idle: %s: %w", strings.Join(busy, ", "), ctx.Err())
	case <-s.finished:
		return ErrClosed
	}
}

func (s *Server) idleLocked() bool {
	for _, n := range s.nodes {
		if n.len() > 0 && !n.expendable() {
			return false
		}
	}
	for c := range s.conns {
		if c.busy() != "" {
			return false
		}
	}
	return true
}

// busyLocked names what is not idle.
func (s *Server) busyLocked() []string {
	var busy []string
	for name, n := range s.nodes {
		if waiting := n.len(); waiting > 0 && !n.expendable() {
			busy = append(busy, fmt.Sprintf("%s %q has %d messages", n.kind, name, waiting))
		}
	}
	for c := range s.conns {
		if what := c.busy(); what != "" {
			busy = append(busy, fmt.Sprintf("client %q: %s", c.client(), what))
		}
	}
	slices.Sort(busy)
	return busy
}

// busy names one thing that goes on with the client, "" if there is none.
func (c *conn) busy() string {
	switch {
	case c.dead:
		return ""
	case c.writing || len(c.out) > 0:
		return "something is to be written to it"
	case c.halfRead:
		return "a frame has not come whole"
	}
	for _, ses := range c.sessions {
		if what := ses.busy(); what != "" {
			return what
		}
	}
	return ""
}

func (ses *session) busy() string {
	switch {
	case len(ses.unsettled) > 0:
		return "deliveries to it are unsettled"
	case len(ses.unsettledIn) > 0:
		return "deliveries of it are unsettled"
	}
	for _, l := range ses.links {
		switch {
		case l.partial != nil:
			return "a message of it has not come whole"
		case l.current != nil:
			return "a message to it has not gone whole"
		}
	}
	return ""
}
