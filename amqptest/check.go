package amqptest

import "testing"

// Check fails tb for every rule of the protocol that a client has broken so
// far, each a *Violation, and for a bad option. It does not wait; call it when
// the client is done, or use what Close returns.
//
// A tb that has failed by its end logs the last 50 of Frames, so that it is
// worth calling at the start too.
func Check(tb testing.TB, s *Server) {
	tb.Helper()
	s.mu.Lock()
	first := s.watched != tb
	s.watched = tb
	errs := append([]error{}, s.violations...)
	if s.err != nil {
		errs = append(errs, s.err)
	}
	s.mu.Unlock()
	if first {
		s.showFrames(tb)
	}
	for _, err := range errs {
		tb.Error(err)
	}
}
