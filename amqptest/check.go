package amqptest

import "testing"

// Check fails tb for every rule of the protocol that a client has broken so
// far, each a *Violation, and for a bad option. It does not wait; call it when
// the client is done, or use what Close returns.
func Check(tb testing.TB, s *Server) {
	tb.Helper()
	s.mu.Lock()
	errs := append([]error{}, s.violations...)
	if s.err != nil {
		errs = append(errs, s.err)
	}
	s.mu.Unlock()
	for _, err := range errs {
		tb.Error(err)
	}
}
