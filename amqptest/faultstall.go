package amqptest

import (
	"slices"
	"time"

	"github.com/amqpflow/amqpflow"
)

// Silence makes every open connection silent in both directions, as a network
// that has gone: the socket stays, what either side sends does not arrive. When
// it ends, everything arrives. Closing the socket is seen.
func Silence() Fault {
	return Fault{kind: faultSilence, times: 1}
}

// Mute is Silence in one direction: the client hears nothing. What it sends is
// handled, up to what the server can hold of its own answers.
func Mute() Fault {
	return Fault{kind: faultMute, times: 1}
}

// Deaf is Silence in one direction: the server hears nothing. It goes on
// sending what it has to send, heartbeats among it.
func Deaf() Fault {
	return Fault{kind: faultDeaf, times: 1}
}

// StopReading is Deaf without taking what the client sends off the socket: the
// client's writes block once the socket's buffers are full, which over Dial is
// with the second write at the latest.
func StopReading() Fault {
	return Fault{kind: faultStopReading, times: 1}
}

// Drip makes every open connection slow: the server writes n bytes at a time,
// and waits in between.
func Drip(n int, every time.Duration) Fault {
	return Fault{kind: faultDrip, size: n, every: every, times: 1}
}

// WithholdCredit grants a publisher on a link of addr no further credit. What
// it has it may use. After counts the grants that are made, of which the first
// comes right after the attach.
//
// Spec: 2.6.7.
func WithholdCredit(addr amqpflow.Address) Fault {
	return Fault{kind: faultWithholdCredit, addr: addr, times: 1}
}

// WithholdWindow lets a session's incoming window close: no flow opens it
// again. After counts the times that it is opened, of which the first is BEGIN:
// without After that announces a window of 0.
//
// Spec: 2.5.6.
func WithholdWindow() Fault {
	return Fault{kind: faultWithholdWindow, times: 1}
}

// heldInput is how many bytes a server that is deaf takes off the socket.
const heldInput = 1 << 20

// stall is what faults have done to a connection, guarded by the server's
// mutex.
type stall struct {
	sent    uint64 // bytes that the writer has taken so far
	held    map[*activeFault]struct{}
	mutedAt uint64 // where what the client hears ends
	hungUp  bool   // the socket is closed once everything is written
	woken   bool   // the reader is to look again at what it has
}

// hold lets f begin on c. The client hears what comes before at.
func (c *conn) hold(f *activeFault, at uint64) {
	if c.held == nil {
		c.held = map[*activeFault]struct{}{}
	}
	if !c.muted() {
		c.mutedAt = at
	}
	c.held[f] = struct{}{}
	c.touch()
	c.srv.goesOn(f, func() {
		delete(c.held, f)
		c.rouse()
	})
}

// holds says whether a fault of one of kinds holds c.
func (c *conn) holds(kinds ...faultKind) bool {
	for f := range c.held {
		if slices.Contains(kinds, f.kind) {
			return true
		}
	}
	return false
}

func (c *conn) muted() bool { return c.holds(faultSilence, faultMute) }
func (c *conn) deaf() bool  { return c.holds(faultSilence, faultDeaf, faultStopReading) }

// stopped says whether the reader is to take nothing more off the socket.
func (c *conn) stopped(taken int) bool {
	return len(c.out) > outLimit || c.holds(faultStopReading) || taken > heldInput && c.deaf()
}

// heal lifts everything.
func (s *Server) heal() {
	s.healings++
	clear(s.faults)
	s.faults = s.faults[:0]
	for _, c := range s.inOrder() {
		if len(c.held) > 0 {
			clear(c.held)
			c.rouse()
		}
		for _, ses := range c.channels {
			if ses != nil {
				ses.heal()
			}
		}
	}
}

func (ses *session) heal() {
	ses.openWindow()
	for _, l := range ses.handles {
		if l != nil {
			l.grantCredit()
		}
	}
}

// rouse makes the reader and the writer look again.
func (c *conn) rouse() {
	c.lastRead.Store(time.Now().UnixNano())
	c.woken = true
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // fails only on a socket that is closed
	c.drained.Broadcast()
	c.touch()
}

// awoken says whether a read has failed because of rouse.
func (c *conn) awoken() bool {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	if !c.woken || c.dead {
		return false
	}
	c.woken = false
	_ = c.nc.SetReadDeadline(time.Time{})
	return true
}

// passing is how much of c.out may be written, which is all of it unless a
// fault holds c; if that is nothing because of a Drip, again is when it is more.
func (c *conn) passing(now, lastWrite time.Time) (n int, again time.Time) {
	n = len(c.out)
	if c.muted() {
		n = c.before(c.mutedAt)
	}
	for f := range c.held {
		if f.kind != faultDrip || n == 0 {
			continue
		}
		if again = lastWrite.Add(f.every); now.Before(again) {
			return 0, again
		}
		n = min(n, f.size)
	}
	return n, time.Time{}
}

// take takes the first n bytes off c.out, which goes on in spare's memory if
// that is all.
func (c *conn) take(n int, spare []byte) []byte {
	c.sent += uint64(n)
	if n == len(c.out) {
		all := c.out
		c.out = spare[:0]
		return all
	}
	part := append(spare[:0], c.out[:n]...) //nolint:gocritic // the part is to be in spare
	c.out = c.out[:copy(c.out, c.out[n:])]
	return part
}

// grantedCredit is the credit that l is granted; no more than it has if a
// fault withholds it.
func (l *link) grantedCredit() uint32 {
	s := l.ses.conn.srv
	if !l.withheld && !l.lifted {
		if f := s.happens(l.subject(), faultWithholdCredit); f != nil {
			l.withheld = true
			s.goesOn(f, l.grantCredit)
			s.over(f)
		}
	}
	if l.withheld {
		return l.credit
	}
	l.lifted = false
	return l.grant()
}

// grantCredit ends what withholds the link's credit. The grant that makes up
// for it is not withheld again.
func (l *link) grantCredit() {
	if l.withheld && l.attached() {
		l.withheld, l.lifted = false, true
		l.oweCredit()
	}
}

// grantedWindow is the incoming window that the client is told; no more than
// is left of it if a fault withholds it.
func (ses *session) grantedWindow() uint32 {
	s := ses.conn.srv
	if !ses.withheld && !ses.lifted {
		if f := s.happens(ses.subject(), faultWithholdWindow); f != nil {
			ses.withheld = true
			s.goesOn(f, ses.openWindow)
			s.over(f)
		}
	}
	if ses.withheld {
		return ses.inWindow
	}
	ses.lifted = false
	return s.opts.Window
}

// openWindow ends what withholds the session's window. The flow that makes up
// for it is not withheld again.
func (ses *session) openWindow() {
	if ses.withheld && !ses.ended && ses.conn.sessions[ses.in] == ses {
		ses.withheld, ses.lifted = false, true
		ses.owesFlow = true
		ses.owe()
	}
}
