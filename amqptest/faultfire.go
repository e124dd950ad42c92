package amqptest

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// faulty is what a Server knows of its faults, guarded by its mutex.
type faulty struct {
	faults   []*activeFault
	healings int  // calls of heal
	firing   bool // within fireFaults
}

// activeFault is a Fault that has been set going, or a part of one that waits
// for its turn.
type activeFault struct {
	Fault
	error *wire.Error
	state wire.State
	dice  *rand.Rand // nil: it happens whenever it may

	left      int              // times that it is still to happen, or forever
	seen      int              // events since it was set going or has last happened
	counts    map[*conn]tally  // frames or bytes since then
	done      map[any]struct{} // what it has happened to, where that is only once
	scheduled bool             // its delay runs
	pending   int              // times that have happened and are not over

	healings int // of the server when it was set going

	parent *activeFault   // of a part
	plans  []*activeFault // of a composition: its parts
	next   int            // of a sequence: the part that is going
	going  int            // of a Together: parts that are not over
}

// tally is what f has counted on one connection.
type tally struct {
	n  int
	at uint64 // where in what the server writes the count was reached
}

// set sets a copy of plan going.
func (s *Server) set(plan *activeFault) {
	f := *plan
	f.healings = s.healings
	if f.kind < faultTogether {
		f.counts, f.done = map[*conn]tally{}, map[any]struct{}{}
		s.faults = append(s.faults, &f)
		return
	}
	s.begin(&f)
}

// happens counts what a client does, and returns the fault of one of kinds
// that is to happen to it; nil if there is none. The caller calls perform with
// it, or over.
func (s *Server) happens(on subject, kinds ...faultKind) *activeFault {
	for _, f := range s.faults {
		if slices.Contains(kinds, f.kind) && f.aim.hits(on) && f.due(on.conn) {
			s.spend(f, on.conn)
			return f
		}
	}
	return nil
}

// ignores is happens where it is all that happens.
func (s *Server) ignores(on subject, kind faultKind) bool {
	f := s.happens(on, kind)
	if f == nil {
		return false
	}
	s.over(f)
	return true
}

// due counts an event on c, and says whether f happens to it.
func (f *activeFault) due(c *conn) bool {
	if f.count != countEvents {
		return f.counts[c].n >= f.after && f.roll(c)
	}
	f.seen++
	return f.seen > f.after && f.roll(c)
}

// spares says whether f lets go of v because it has happened to it before and
// would go on without end: nothing passes in between.
func (f *activeFault) spares(v any) bool {
	_, done := f.done[v]
	return done && f.delay == 0
}

// roll says whether f takes an opportunity; counting starts anew if it does
// not.
func (f *activeFault) roll(c *conn) bool {
	if f.dice == nil || f.dice.Float64() < f.chance {
		return true
	}
	if f.kind.acts() || f.count != countEvents {
		f.restart(c)
	}
	return false
}

func (f *activeFault) restart(c *conn) {
	f.seen = 0
	delete(f.counts, c)
}

// spend accounts for one time that f happens, on c or to what there is.
func (s *Server) spend(f *activeFault, c *conn) {
	s.log.Debug("fault", "fault", f.String())
	f.pending++
	f.restart(c)
	if f.left != forever {
		f.left--
	}
	if f.left == 0 {
		s.faults = slices.DeleteFunc(s.faults, func(o *activeFault) bool { return o == f })
	}
}

// perform does what f does to what a client did, after f's delay.
func (s *Server) perform(f *activeFault, act func()) {
	if f.delay == 0 {
		act()
		s.over(f)
		return
	}
	s.later(f.delay, func() {
		act()
		s.over(f)
	})
}

// countTransfer counts a delivery over l.
func (s *Server) countTransfer(l *link) {
	if len(s.faults) == 0 {
		return
	}
	for _, f := range s.faults {
		if f.kind.acts() && f.count == countEvents && f.aim.hits(l.subject()) {
			f.seen++
		}
	}
	s.fireFaults()
}

// fireFaults lets the faults happen that act on what exists and are due.
func (s *Server) fireFaults() {
	if len(s.faults) == 0 || s.firing {
		return
	}
	s.firing = true
	defer func() { s.firing = false }()
	for _, f := range slices.Clone(s.faults) {
		switch {
		case !f.kind.acts():
		case f.count == countEvents:
			if f.seen >= f.after {
				s.strike(f, nil)
			}
		default:
			for _, c := range s.inOrder() {
				if f.counts[c].n >= f.after {
					s.strike(f, c)
				}
			}
		}
	}
}

// strike lets f happen to what it is aimed at: on c, or if that is nil on any
// connection.
func (s *Server) strike(f *activeFault, c *conn) {
	if f.left == 0 || f.scheduled || len(s.blows(f, c)) == 0 || !f.roll(c) {
		return
	}
	if f.delay == 0 {
		s.hit(f, c)
		return
	}
	f.scheduled = true
	s.later(f.delay, func() {
		f.scheduled = false
		if s.healings == f.healings {
			s.hit(f, c)
		}
	})
}

func (s *Server) hit(f *activeFault, c *conn) {
	blows := s.blows(f, c)
	if len(blows) == 0 {
		return
	}
	s.spend(f, c)
	for _, blow := range blows {
		blow()
	}
	s.over(f)
}

// goesOn lifts what f has done to one thing after f's duration.
func (s *Server) goesOn(f *activeFault, lift func()) {
	if f.lasts == 0 {
		return
	}
	f.pending++
	s.later(f.lasts, func() {
		if s.healings == f.healings {
			lift()
		}
		s.over(f)
	})
}

// inOrder are the connections by the time at which they were asked for.
func (s *Server) inOrder() []*conn {
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
}

// forget drops what the faults know of a connection that has ended.
func (s *Server) forget(c *conn) {
	for _, f := range s.faults {
		delete(f.counts, c)
		delete(f.done, c)
	}
}

// counted counts a frame or protocol header on c for the faults that count
// those. What the server sends is at the end of c.out.
func (c *conn) counted(sent bool, frame []byte) {
	for _, f := range c.srv.faults {
		if f.count == countEvents || !f.aim.hitsFrame(c, sent, frame) {
			continue
		}
		t := f.counts[c]
		before := t.n
		if f.count == countFrames {
			t.n++
		} else {
			t.n += len(frame)
		}
		if before < f.after && t.n >= f.after {
			t.at = c.written()
			if over := t.n - f.after; f.count == countBytes && sent {
				t.at -= uint64(over)
			}
		}
		f.counts[c] = t
	}
}

// arrives counts the client's next frame, and says whether it is to be
// handled: not if it goes beyond the bytes that a fault lets through, which has
// cut the connection or made the server deaf.
func (c *conn) arrives(frame []byte) bool {
	beyond := false
	for _, f := range c.srv.faults {
		n := f.counts[c].n
		if f.count == countBytes && f.kind.acts() && n < f.after && n+len(frame) > f.after && f.aim.hitsFrame(c, false, frame) {
			f.counts[c] = tally{n: f.after, at: c.written()}
			beyond = true
		}
	}
	if beyond {
		c.srv.fireFaults()
	}
	if c.dead || c.hungUp || c.deaf() {
		return false
	}
	c.passed(false, false, frame)
	return true
}
