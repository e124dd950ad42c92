package amqptest

import (
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
)

// Fault is something that goes wrong on purpose. A constructor says what, its
// modifiers say when, how often and to whom, and Server.Fault sets it going:
//
//	s.Fault(amqptest.Drop())                                         // at once
//	s.Fault(amqptest.Drop().AfterBytes(700).Always())                // each connection, at its 700th byte
//	s.Fault(amqptest.Detach("orders", amqp.ErrCondDetachForced, "")) // once there is such a link
//	s.Fault(amqptest.Sequence(amqptest.Drop().After(20), amqptest.RefuseTCP().Times(3)))
//
// Without modifiers it happens once, at the first opportunity, to whatever
// there is. A Fault is a value: the same one can be used again, and String
// says what it does.
//
// A fault waits for whom it is to happen to: Detach for a link, Drop for a
// connection. One that acts on connections, sessions or links that exist
// happens to all of them together, which counts as once; with AfterFrames or
// AfterBytes to those of one connection. One that answers what a client does
// (a refusal, an outcome, an answer that is withheld) happens to that.
type Fault struct {
	kind    faultKind
	addr    amqpflow.Address
	cond    amqp.ErrCond
	text    string
	outcome amqpflow.Outcome
	reason  *amqp.Error
	code    uint8         // of RefuseSASL
	data    string        // of WriteBytes
	size    int           // of Drip
	every   time.Duration // of Drip
	parts   []Fault       // of Together and Sequence

	times   int // forever: without end
	count   counted
	after   int
	delay   time.Duration
	lasts   time.Duration // 0: until Heal
	diced   bool
	chance  float64
	seed    uint64
	aim     aim
	problem string // of a modifier's argument
}

// counted is what After, AfterFrames and AfterBytes count.
type counted uint8

const (
	countEvents counted = iota
	countFrames
	countBytes
)

const forever = -1

// Times makes f happen n times, at least 1.
func (f Fault) Times(n int) Fault {
	f.times = n
	if n < 1 {
		f.problem = fmt.Sprintf("times %d is below 1", n)
	}
	return f
}

// Always makes f happen at every opportunity, until Heal or Close.
func (f Fault) Always() Fault {
	f.times = forever
	return f
}

// After makes f wait for n events, counted from Server.Fault, or from the last
// time that it happened. What counts stands on the constructor; where nothing
// stands there, it is the deliveries that go over the links which f is aimed
// at, in either direction.
func (f Fault) After(n int) Fault {
	return f.counting(countEvents, n)
}

// AfterFrames makes f wait until n frames have gone over a connection, both
// directions together, protocol headers and heartbeats included. If f is aimed
// at a session, a link or an address, only the frames of its sessions and links
// count. Each connection has its own count, from its beginning or from
// Server.Fault, whichever is later, and anew after f has happened to it; 0
// means before its first frame.
func (f Fault) AfterFrames(n int) Fault {
	return f.counting(countFrames, n)
}

// AfterBytes is AfterFrames by bytes, those of frame headers and protocol
// headers included. What Drop, Silence, Mute and Deaf let through ends with the
// n-th byte where the server sends it, and before the frame with the n-th byte
// where the client does; every other fault happens between two frames.
func (f Fault) AfterBytes(n int) Fault {
	return f.counting(countBytes, n)
}

func (f Fault) counting(what counted, n int) Fault {
	f.count, f.after = what, n
	if n < 0 {
		f.problem = fmt.Sprintf("after %d is below 0", n)
	}
	return f
}

// Delay makes f happen d later than it would. A fault that then finds nobody
// to happen to waits on.
func (f Fault) Delay(d time.Duration) Fault {
	f.delay = d
	if d <= 0 {
		f.problem = fmt.Sprintf("a delay of %v", d)
	}
	return f
}

// For ends a fault that goes on, such as Silence or WithholdCredit, after d.
// Without it, it goes on until Heal, or as long as the connection, session or
// link does.
func (f Fault) For(d time.Duration) Fault {
	f.lasts = d
	if d <= 0 {
		f.problem = fmt.Sprintf("a duration of %v", d)
	}
	return f
}

// Chance makes f let opportunities pass: it happens with probability p at each
// of them. The same seed decides the same way each time. A fault that acts on
// what exists has an opportunity with each event that After counts, or each
// n-th with After, AfterFrames or AfterBytes.
func (f Fault) Chance(p float64, seed uint64) Fault {
	f.diced, f.chance, f.seed = true, p, seed
	if !(p > 0 && p <= 1) {
		f.problem = fmt.Sprintf("a chance of %v is not in (0, 1]", p)
	}
	return f
}

// Fault sets f going. It returns an error that names what is wrong if f can
// never happen: it is a zero Fault, a number or a duration is out of range, an
// address cannot be parsed, a modifier does not go with its kind, such as a
// link for RefuseOpen, or its connection has gone. It returns ErrClosed after Close, and a bad option of
// the server.
func (s *Server) Fault(f Fault) error {
	if err := s.usable(); err != nil {
		return err
	}
	s.lock()
	defer s.unlock()
	active, err := s.activate(&f)
	if err != nil {
		return fmt.Errorf("amqptest: fault: %v: %w", f, err)
	}
	s.set(active)
	return nil
}

// Heal lifts every fault: what has not happened will not, what is silent,
// slow or withheld goes on where it stopped. What has been refused, answered,
// cut or left unanswered stays so.
func (s *Server) Heal() {
	s.lock()
	defer s.unlock()
	s.heal()
}
