package wire

// Terminus expiry policies and durabilities.
//
// Spec: 3.5.5, 3.5.6.
const (
	ExpireLinkDetach      Symbol = "link-detach"
	ExpireSessionEnd      Symbol = "session-end" // what absence means
	ExpireConnectionClose Symbol = "connection-close"
	ExpireNever           Symbol = "never"

	DurableNone           uint32 = 0
	DurableConfiguration  uint32 = 1
	DurableUnsettledState uint32 = 2
)

// Source is where the deliveries of a link come from.
//
// Spec: 3.5.3.
type Source struct {
	Address               string
	HasAddress            bool
	Durable               uint32
	ExpiryPolicy          Symbol // empty if absent
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	DistributionMode      Symbol
	Filter                Map
	DefaultOutcome        *State
	Outcomes              []Symbol
	Capabilities          []Symbol
}

// Target is where the deliveries of a link go to.
//
// Spec: 3.5.4.
type Target struct {
	Address               string
	HasAddress            bool
	Durable               uint32
	ExpiryPolicy          Symbol // empty if absent
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	Capabilities          []Symbol
}

// Coordinator is the target of a link that declares and discharges transactions.
//
// Spec: 4.5.1.
type Coordinator struct{ Capabilities []Symbol }

// source reads a source, nil if it is absent.
func (f *fields) source() *Source {
	b := f.value()
	if b == nil {
		return nil
	}
	var g fields
	if err := g.openWhole("source", CodeSource, b); err != nil {
		f.fail(err)
		return nil
	}
	var s Source
	s.Address, s.HasAddress = g.string()
	s.Durable = g.uint32Or(0)
	s.ExpiryPolicy, _ = g.symbol()
	s.Timeout = g.uint32Or(0)
	s.Dynamic = g.isTrue()
	s.DynamicNodeProperties = g.mapping()
	s.DistributionMode, _ = g.symbol()
	s.Filter = g.mapping()
	s.DefaultOutcome = g.outcome()
	s.Outcomes = g.symbols()
	s.Capabilities = g.symbols()
	if err := g.end(); err != nil {
		f.fail(err)
		return nil
	}
	return &s
}

func (s *Source) append(dst []byte) []byte {
	w := beginList(dst, CodeSource)
	w.address(s.Address, s.HasAddress)
	w.uint32Unless(s.Durable, 0)
	w.ifSymbol(s.ExpiryPolicy)
	w.uint32Unless(s.Timeout, 0)
	w.ifTrue(s.Dynamic)
	w.ifMap(s.DynamicNodeProperties)
	w.ifSymbol(s.DistributionMode)
	w.ifMap(s.Filter)
	w.ifState(s.DefaultOutcome)
	w.ifSymbols(s.Outcomes)
	w.ifSymbols(s.Capabilities)
	return w.end()
}

// target reads a target or coordinator; both are nil if it is absent.
func (f *fields) target() (*Target, *Coordinator) {
	b := f.value()
	if b == nil {
		return nil, nil
	}
	code, _, err := PeekDescriptor(b)
	if err == nil && code == CodeCoordinator {
		return nil, f.coordinator(b)
	}
	var g fields
	if err := g.openWhole("target", CodeTarget, b); err != nil {
		f.fail(err)
		return nil, nil
	}
	var t Target
	t.Address, t.HasAddress = g.string()
	t.Durable = g.uint32Or(0)
	t.ExpiryPolicy, _ = g.symbol()
	t.Timeout = g.uint32Or(0)
	t.Dynamic = g.isTrue()
	t.DynamicNodeProperties = g.mapping()
	t.Capabilities = g.symbols()
	if err := g.end(); err != nil {
		f.fail(err)
		return nil, nil
	}
	return &t, nil
}

func (t *Target) append(dst []byte) []byte {
	w := beginList(dst, CodeTarget)
	w.address(t.Address, t.HasAddress)
	w.uint32Unless(t.Durable, 0)
	w.ifSymbol(t.ExpiryPolicy)
	w.uint32Unless(t.Timeout, 0)
	w.ifTrue(t.Dynamic)
	w.ifMap(t.DynamicNodeProperties)
	w.ifSymbols(t.Capabilities)
	return w.end()
}

func (f *fields) coordinator(b []byte) *Coordinator {
	var g fields
	if err := g.openWhole("coordinator", CodeCoordinator, b); err != nil {
		f.fail(err)
		return nil
	}
	c := Coordinator{Capabilities: g.symbols()}
	if err := g.end(); err != nil {
		f.fail(err)
		return nil
	}
	return &c
}

func (c *Coordinator) append(dst []byte) []byte {
	w := beginList(dst, CodeCoordinator)
	w.ifSymbols(c.Capabilities)
	return w.end()
}

// address writes an address, which may be there and empty.
func (w *listWriter) address(v string, has bool) {
	if has || v != "" {
		w.string(v)
	} else {
		w.skip()
	}
}
