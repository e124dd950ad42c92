package amqptest

import (
	"net"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
)

// Detach closes every link of addr with a condition and a description, or
// with none if both are "". What consumers had not settled goes back to the
// queue, its delivery-count unchanged.
//
// Spec: 2.6.6.
func Detach(addr amqpflow.Address, cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultDetach, addr: addr, cond: cond, text: description, times: 1}
}

// Suspend is Detach without closing the links: what the client's end of each
// has unsettled it may resume.
//
// Spec: 2.6.4.
func Suspend(addr amqpflow.Address, cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultSuspend, addr: addr, cond: cond, text: description, times: 1}
}

// End ends every session with a condition and a description, or with none if
// both are "". Deliveries are as for Detach.
//
// Spec: 2.5.4.
func End(cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultEnd, cond: cond, text: description, times: 1}
}

// Close closes every connection with a condition and a description, or with
// none if both are "". Deliveries are as for Detach.
//
// Spec: 2.4.3.
func Close(cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultClose, cond: cond, text: description, times: 1}
}

// Drop cuts every open connection without a word. What was still to be written
// is lost, and a TCP connection is reset. With AfterFrames and AfterBytes only
// what comes after the last of those is lost: the client sees that, and the end.
// Deliveries are as for Detach.
func Drop() Fault {
	return Fault{kind: faultDrop, times: 1}
}

// WriteBytes writes bytes to every open connection, between two frames. They
// may be anything: a frame that breaks a rule, or none at all. Without
// something to count it happens once to each connection.
func WriteBytes(b []byte) Fault {
	return Fault{kind: faultWriteBytes, data: string(b), times: 1}
}

// abort makes the close of a TCP socket a reset.
func (c *conn) abort() {
	if t, ok := c.socket().(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only on a socket that is closed
	}
}

// hangUp closes the connection without a word once it has written what comes
// before at.
func (c *conn) hangUp(at uint64) {
	if c.dead {
		return
	}
	c.out = c.out[:c.before(at)]
	c.release()
	c.end()
	c.hungUp = true
}

// before is how much of c.out comes before at.
func (c *conn) before(at uint64) int {
	if at <= c.sent {
		return 0
	}
	return int(min(at-c.sent, uint64(len(c.out))))
}

// written is where in all that the server writes to the client the next byte
// will be.
func (c *conn) written() uint64 { return c.sent + uint64(len(c.out)) }

// blows are what f does to what it is aimed at, one function for each: on c,
// or if that is nil on any connection. There is nothing to do if there are none.
func (s *Server) blows(f *activeFault, c *conn) []func() {
	conns := []*conn{c}
	if c == nil {
		conns = s.inOrder()
	}
	var blows []func()
	for _, c := range conns {
		switch f.kind {
		case faultDetach, faultSuspend, faultTakeBack, faultOverSend:
			for _, l := range f.aim.linksOn(c) {
				blows = append(blows, l.blow(f)...)
			}
		case faultEnd:
			for _, ses := range f.aim.sessionsOf(c) {
				blows = append(blows, func() { ses.end(f.error) })
			}
		default:
			if c.reachable(f) && f.aim.on(c) {
				blows = append(blows, c.blow(f)...)
			}
		}
	}
	return blows
}

// reachable says whether f may happen to c: it is open, or f counts what comes
// before that too.
func (c *conn) reachable(f *activeFault) bool {
	_, there := c.srv.conns[c]
	return there && !c.dead && (c.phase == phaseRunning || f.count != countEvents && c.phase < phaseRunning)
}

func (l *link) blow(f *activeFault) []func() {
	switch f.kind {
	case faultTakeBack:
		return l.takeBack(f)
	case faultOverSend:
		return l.overSend()
	default:
		return []func(){func() {
			if l.attached() {
				l.detachAs(f.error, f.kind == faultDetach)
			}
		}}
	}
}

func (c *conn) blow(f *activeFault) []func() {
	t, counts := f.counts[c]
	switch f.kind {
	case faultClose:
		return []func(){func() { c.shut(f.error) }}
	case faultDrop:
		if counts {
			return []func(){func() { c.hangUp(t.at) }}
		}
		return []func(){func() {
			c.abort()
			c.drop()
		}}
	case faultWriteBytes:
		if f.after == 0 && f.spares(c) {
			return nil
		}
		return []func(){func() {
			f.done[c] = struct{}{}
			c.out = append(c.out, f.data...)
			c.passed(true, true, c.out[len(c.out)-len(f.data):])
			c.touch()
		}}
	default:
		if c.holds(f.kind) {
			return nil
		}
		at := c.sent
		if counts {
			at = t.at
		}
		return []func(){func() { c.hold(f, at) }}
	}
}
