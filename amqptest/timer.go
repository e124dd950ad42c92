package amqptest

import "time"

// later calls act under the mutex after d, unless the server is closed by then.
// The timer's goroutine is waited for by Close, as those of connections are.
func (s *Server) later(d time.Duration, act func()) {
	if s.closed {
		return
	}
	s.wg.Add(1)
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		defer s.wg.Done()
		s.lock()
		defer s.unlock()
		delete(s.timers, t)
		if !s.closed {
			act()
		}
	})
	s.timers[t] = struct{}{}
}

// stopTimers ends what later has begun.
func (s *Server) stopTimers() {
	for t := range s.timers {
		if t.Stop() {
			s.wg.Done()
		}
	}
	clear(s.timers)
}
