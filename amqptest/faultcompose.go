package amqptest

import (
	"errors"
	"fmt"
)

// Together sets several faults going at once. Times and Always start all of
// them again when all of them are over.
func Together(fs ...Fault) Fault {
	return Fault{kind: faultTogether, parts: fs, times: 1}
}

// Sequence sets each fault going when the one before it is over: has happened
// as often as it is to, and its Delay and For have passed. Times and Always
// start it again from the first.
func Sequence(fs ...Fault) Fault {
	return Fault{kind: faultSequence, parts: fs, times: 1}
}

// activateParts checks a composition and its parts.
func (s *Server) activateParts(a *activeFault) error {
	f := &a.Fault
	switch {
	case len(f.parts) == 0:
		return errors.New("a composition of nothing")
	case f.after > 0 || f.count != countEvents || f.delay > 0 || f.lasts > 0 || f.diced || f.addr != "" || f.aim != aim{}:
		return errors.New("a composition has only Times and Always, the rest belongs to its parts")
	}
	for i := range f.parts {
		part, err := s.activate(&f.parts[i])
		if err != nil {
			return fmt.Errorf("part %d, %v: %w", i+1, f.parts[i], err)
		}
		endless := f.parts[i].endless()
		switch {
		case endless && f.times != 1:
			return fmt.Errorf("part %d, %v: is never over, so that nothing starts again", i+1, f.parts[i])
		case endless && f.kind == faultSequence && i+1 < len(f.parts):
			return fmt.Errorf("part %d, %v: is never over, so that part %d never begins", i+1, f.parts[i], i+2)
		}
		a.plans = append(a.plans, part)
	}
	return nil
}

// endless says whether f is never over.
func (f *Fault) endless() bool {
	if f.times == forever {
		return true
	}
	for i := range f.parts {
		if f.parts[i].endless() {
			return true
		}
	}
	return false
}

// begin starts a composition from its first part.
func (s *Server) begin(f *activeFault) {
	f.next, f.going = 0, len(f.plans)
	for _, plan := range f.plans {
		plan.parent = f
	}
	if f.kind == faultSequence {
		s.set(f.plans[0])
		return
	}
	for _, plan := range f.plans {
		s.set(plan)
	}
}

// over accounts for one time of f that is over, and lets the composition that
// f is a part of go on when it was the last.
func (s *Server) over(f *activeFault) {
	f.pending--
	if f.left == 0 && f.pending == 0 {
		s.goOn(f)
	}
}

// goOn lets the composition go on that f is a part of, unless Heal has
// lifted it.
func (s *Server) goOn(f *activeFault) {
	p := f.parent
	if p == nil || f.healings != s.healings {
		return
	}
	if p.kind == faultSequence {
		if p.next++; p.next < len(p.plans) {
			s.set(p.plans[p.next])
			return
		}
	} else if p.going--; p.going > 0 {
		return
	}
	if p.left != forever {
		p.left--
	}
	if p.left == 0 {
		s.goOn(p)
		return
	}
	s.begin(p)
}
