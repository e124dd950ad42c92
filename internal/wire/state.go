package wire

// StateKind tells the delivery states apart.
type StateKind uint8

// The delivery states.
const (
	StateNone StateKind = iota // absent
	StateReceived
	StateAccepted
	StateRejected
	StateReleased
	StateModified
	StateDeclared
	StateTransactional
	StateUnknown // well-formed, but none of the standard's
)

// State is a delivery state: a value, so that a transfer or disposition decodes
// without allocating unless the state has an error, annotations or a transaction.
//
// Spec: 3.4 (received to modified), 4.5.5 (declared), 4.5.6 (transactional-state).
type State struct {
	Kind              StateKind
	DeliveryFailed    bool   // modified
	UndeliverableHere bool   // modified
	SectionNumber     uint32 // received
	SectionOffset     uint64 // received
	Error             *Error // rejected; nil if absent
	Annotations       Map    // modified: message annotations
	TxnID             []byte // declared, transactional; memory of its own
	Outcome           *State // transactional; nil if absent
}

// Terminal reports whether s is an outcome: accepted, rejected, released,
// modified, declared, or transactional with an outcome.
//
// Spec: 3.4, 4.5.5, 4.5.6.
func (s *State) Terminal() bool {
	switch s.Kind {
	case StateAccepted, StateRejected, StateReleased, StateModified, StateDeclared:
		return true
	case StateTransactional:
		return s.Outcome != nil
	}
	return false
}

// AppendState appends s. StateNone, StateUnknown and nil are null.
func AppendState(dst []byte, s *State) []byte {
	if s == nil {
		return append(dst, fmtNull)
	}
	switch s.Kind {
	case StateAccepted:
		return append(dst, fmtDescribed, fmtSmallUlong, byte(CodeAccepted), fmtList0)
	case StateReleased:
		return append(dst, fmtDescribed, fmtSmallUlong, byte(CodeReleased), fmtList0)
	case StateReceived:
		w := beginList(dst, CodeReceived)
		w.uint32(s.SectionNumber)
		w.uint64(s.SectionOffset)
		return w.end()
	case StateRejected:
		w := beginList(dst, CodeRejected)
		w.ifError(s.Error)
		return w.end()
	case StateModified:
		w := beginList(dst, CodeModified)
		w.ifTrue(s.DeliveryFailed)
		w.ifTrue(s.UndeliverableHere)
		w.ifMap(s.Annotations)
		return w.end()
	case StateDeclared:
		w := beginList(dst, CodeDeclared)
		w.binary(s.TxnID)
		return w.end()
	case StateTransactional:
		w := beginList(dst, CodeTransactionalState)
		w.binary(s.TxnID)
		// An outcome is never transactional itself, which also bounds this.
		if s.Outcome != nil && s.Outcome.Kind != StateTransactional {
			w.ifState(s.Outcome)
		}
		return w.end()
	}
	return append(dst, fmtNull)
}

// state reads a delivery state or an outcome into dst, which is zero.
func (f *fields) state(dst *State) {
	// Accepted as nearly everybody writes it.
	if b := f.b; f.left > 0 && f.err == nil && len(b) >= 4 && b[0] == fmtDescribed &&
		b[1] == fmtSmallUlong && b[2] == byte(CodeAccepted) && b[3] == fmtList0 {
		f.left--
		f.index++
		f.b = b[4:]
		dst.Kind = StateAccepted
		return
	}
	if b := f.value(); b != nil {
		if err := dst.decode(b); err != nil {
			f.fail(err)
		}
	}
}

// decode decodes an encoded state, which a scanner has checked, into a zero s.
func (s *State) decode(b []byte) error {
	code, n, err := descriptor(b)
	if err != nil {
		return within(err, "delivery state")
	}
	if s.Kind = stateKind(code); s.Kind == StateUnknown {
		return nil
	}
	var f fields
	if _, err := f.openList("delivery state", b[n:]); err != nil {
		return err
	}
	f.stateFields(s)
	return f.end()
}

func stateKind(code uint64) StateKind {
	switch code {
	case CodeReceived:
		return StateReceived
	case CodeAccepted:
		return StateAccepted
	case CodeRejected:
		return StateRejected
	case CodeReleased:
		return StateReleased
	case CodeModified:
		return StateModified
	case CodeDeclared:
		return StateDeclared
	case CodeTransactionalState:
		return StateTransactional
	}
	return StateUnknown
}

func (f *fields) stateFields(s *State) {
	var ok bool
	switch s.Kind {
	case StateReceived:
		s.SectionNumber = f.uint32Must()
		s.SectionOffset, ok = f.uint64()
		f.must(ok)
	case StateRejected:
		s.Error = f.error()
	case StateModified:
		s.DeliveryFailed = f.isTrue()
		s.UndeliverableHere = f.isTrue()
		s.Annotations = f.mapping()
	case StateDeclared:
		s.TxnID, ok = f.binaryCopy()
		f.must(ok)
	case StateTransactional:
		s.TxnID, ok = f.binaryCopy()
		f.must(ok)
		s.Outcome = f.outcome()
	}
}

// outcome reads the outcome in a transactional state, nil if it is absent.
func (f *fields) outcome() *State {
	b := f.value()
	if b == nil {
		return nil
	}
	if code, _, err := descriptor(b); err == nil && code == CodeTransactionalState {
		f.fail(malformed("transactional state as an outcome"))
		return nil
	}
	s := new(State)
	if err := s.decode(b); err != nil {
		f.fail(err)
		return nil
	}
	return s
}
