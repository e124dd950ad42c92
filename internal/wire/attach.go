package wire

// Role says which end of a link a peer is.
//
// Spec: 2.8.1.
type Role bool

// The roles.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

// String returns "sender" or "receiver".
func (r Role) String() string {
	if r == RoleReceiver {
		return "receiver"
	}
	return "sender"
}

// Settlement modes.
//
// Spec: 2.8.2, 2.8.3.
const (
	SndUnsettled uint8 = 0
	SndSettled   uint8 = 1
	SndMixed     uint8 = 2
	RcvFirst     uint8 = 0
	RcvSecond    uint8 = 1
)

// Attach attaches a link to a session.
//
// Spec: 2.7.3.
type Attach struct {
	Name                 string
	Handle               uint32
	Role                 Role
	SndSettleMode        uint8   // absent: SndMixed
	RcvSettleMode        uint8   // absent: RcvFirst
	Source               *Source // nil if absent
	Target               *Target // nil if absent, or if there is a Coordinator
	Coordinator          *Coordinator
	Unsettled            Map
	IncompleteUnsettled  bool
	InitialDeliveryCount OptUint32
	MaxMessageSize       uint64 // octets; 0, or absent: no limit
	OfferedCapabilities  []Symbol
	DesiredCapabilities  []Symbol
	Properties           Map
}

// Decode overwrites a with the attach in body. It returns an error if body is
// anything else, a mandatory field is absent, a settlement mode is none of the
// standard's, or the source or target is of a foreign type.
func (a *Attach) Decode(body []byte) error {
	*a = Attach{SndSettleMode: SndMixed}
	var f fields
	if err := f.openWhole("attach", CodeAttach, body); err != nil {
		return err
	}
	var ok bool
	a.Name, ok = f.string()
	f.must(ok)
	a.Handle = f.uint32Must()
	a.Role = f.role()
	if v, ok := f.uint8(); ok {
		a.SndSettleMode = f.atMost(v, SndMixed)
	}
	if v, ok := f.uint8(); ok {
		a.RcvSettleMode = f.atMost(v, RcvSecond)
	}
	a.Source = f.source()
	a.Target, a.Coordinator = f.target()
	a.Unsettled = f.mapping()
	a.IncompleteUnsettled = f.isTrue()
	a.InitialDeliveryCount = f.optUint32()
	a.MaxMessageSize, _ = f.uint64()
	a.OfferedCapabilities = f.symbols()
	a.DesiredCapabilities = f.symbols()
	a.Properties = f.mapping()
	return f.end()
}

// Append appends the descriptor and list of a. Maps that [AppendValue] refuses
// are left off.
func (a *Attach) Append(dst []byte) []byte {
	w := beginList(dst, CodeAttach)
	w.string(a.Name)
	w.uint32(a.Handle)
	w.bool(bool(a.Role))
	w.uint8Unless(a.SndSettleMode, SndMixed)
	w.uint8Unless(a.RcvSettleMode, RcvFirst)
	if a.Source != nil {
		w.field()
		w.dst = a.Source.append(w.dst)
	} else {
		w.skip()
	}
	switch {
	case a.Coordinator != nil:
		w.field()
		w.dst = a.Coordinator.append(w.dst)
	case a.Target != nil:
		w.field()
		w.dst = a.Target.append(w.dst)
	default:
		w.skip()
	}
	w.ifMap(a.Unsettled)
	w.ifTrue(a.IncompleteUnsettled)
	w.optUint32(a.InitialDeliveryCount)
	if a.MaxMessageSize != 0 {
		w.uint64(a.MaxMessageSize)
	} else {
		w.skip()
	}
	w.ifSymbols(a.OfferedCapabilities)
	w.ifSymbols(a.DesiredCapabilities)
	w.ifMap(a.Properties)
	return w.end()
}

// role reads a mandatory role.
func (f *fields) role() Role {
	v, ok := f.bool()
	f.must(ok)
	return Role(v)
}

// atMost fails if an enumerated value is above the last one defined.
func (f *fields) atMost(v, last uint8) uint8 {
	if v > last {
		f.fail(malformed("value %d is above %d", v, last))
		return 0
	}
	return v
}
