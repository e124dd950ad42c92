package amqptest

import (
	"time"
)

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// writeLoop sends what waits in c.out, everything at once, heartbeats when
// there is nothing, and watches over the client's silence. Started by start,
// ends with the connection, waited for by Close; it alone writes.
func (c *conn) writeLoop() {
	var spare []byte
	lastWrite := time.Now()
	for {
		buf, due, end := c.swap(spare, lastWrite)
		if end {
			c.finish()
			return
		}
		if len(buf) == 0 {
			c.await(due)
			spare = buf
			continue
		}
		if _, err := c.nc.Write(buf); err != nil {
			c.finish()
			return
		}
		spare, lastWrite = buf, time.Now()
	}
}

// swap takes what is to be written and leaves spare in its place. It returns
// when the writer must look again, zero if never, and whether it is to end.
func (c *conn) swap(spare []byte, lastWrite time.Time) (buf []byte, due time.Time, end bool) {
	s := c.srv
	s.lock()
	defer s.unlock()
	c.writing = false
	if c.dead {
		return nil, due, true
	}
	if c.hungUp && len(c.out) == 0 {
		return nil, due, true
	}
	if c.starved && len(c.out) < outRoom {
		c.starved = false
		c.resume()
		s.quiesce()
	}
	now := time.Now()
	if c.phase == phaseClosing || len(c.out) == 0 && !c.muted() {
		if due, end = c.timers(now, lastWrite); end {
			return nil, due, true
		}
	}
	n, again := c.passing(now, lastWrite)
	if n == 0 {
		if due.IsZero() || !again.IsZero() && again.Before(due) {
			due = again
		}
		return spare[:0], due, false
	}
	buf = c.take(n, spare)
	c.writing = true
	c.drained.Broadcast()
	if idle := s.opts.IdleTimeout; idle > 0 && c.phase != phaseClosing {
		_ = c.nc.SetWriteDeadline(now.Add(idle)) // a client that takes nothing meanwhile is lost
	}
	return buf, due, false
}

// timers appends a heartbeat if one is due, closes the connection if the
// client has been silent for too long, and returns when to look again.
func (c *conn) timers(now, lastWrite time.Time) (due time.Time, end bool) {
	if c.phase == phaseClosing {
		return c.ending, !now.Before(c.ending)
	}
	if beat := time.Duration(c.peer.IdleTimeout) * time.Millisecond / 2; beat > 0 && c.phase == phaseRunning {
		due = lastWrite.Add(beat)
		if !now.Before(due) {
			c.out = append(c.out, emptyFrame...)
			c.passed(true, false, emptyFrame)
		}
	}
	if idle := c.srv.opts.IdleTimeout; idle > 0 && !c.deaf() {
		silent := time.Unix(0, c.lastRead.Load()).Add(idle)
		if !now.Before(silent) {
			c.violatef(ruleIdle, "silent for %v", idle)
			return c.ending, false
		}
		if due.IsZero() || silent.Before(due) {
			due = silent
		}
	}
	return due, false
}

// await waits for signal, or until due unless that is zero.
func (c *conn) await(due time.Time) {
	if due.IsZero() {
		<-c.wake
		return
	}
	t := time.NewTimer(time.Until(due))
	defer t.Stop()
	select {
	case <-c.wake:
	case <-t.C:
	}
}

// finish closes the socket unless that has been done; the reader sees it.
func (c *conn) finish() {
	s := c.srv
	s.lock()
	c.writing = false
	c.drop()
	s.unlock()
}

// room says whether a delivery may be appended.
func (c *conn) room() bool {
	if len(c.out) < outRoom {
		return true
	}
	c.starved = true
	return false
}

// resume lets the deliveries go on that waited for room.
func (c *conn) resume() {
	for _, ses := range inOrder(c.sessions) {
		ses.resume()
	}
}
