package wire

// Flow updates the flow state of a session and, with a handle, of a link.
//
// Spec: 2.7.4.
type Flow struct {
	NextIncomingID OptUint32
	IncomingWindow uint32
	NextOutgoingID uint32
	OutgoingWindow uint32
	Handle         OptUint32
	DeliveryCount  OptUint32
	LinkCredit     OptUint32
	Available      OptUint32
	Drain          bool
	Echo           bool
	Properties     []byte // the encoded map, nil if absent; aliases the frame
}

// Decode overwrites p with the flow in body. It allocates nothing unless it
// fails, which it does if body is anything else or a mandatory field is absent.
func (p *Flow) Decode(body []byte) error {
	*p = Flow{}
	var f fields
	if err := f.openWhole("flow", CodeFlow, body); err != nil {
		return err
	}
	p.NextIncomingID = f.optUint32()
	p.IncomingWindow = f.uint32Must()
	p.NextOutgoingID = f.uint32Must()
	p.OutgoingWindow = f.uint32Must()
	p.Handle = f.optUint32()
	p.DeliveryCount = f.optUint32()
	p.LinkCredit = f.optUint32()
	p.Available = f.optUint32()
	p.Drain = f.isTrue()
	p.Echo = f.isTrue()
	p.Properties = f.mapValue()
	return f.end()
}

// Append appends the descriptor and list of p.
func (p *Flow) Append(dst []byte) []byte {
	w := beginList(dst, CodeFlow)
	w.optUint32(p.NextIncomingID)
	w.uint32(p.IncomingWindow)
	w.uint32(p.NextOutgoingID)
	w.uint32(p.OutgoingWindow)
	w.optUint32(p.Handle)
	w.optUint32(p.DeliveryCount)
	w.optUint32(p.LinkCredit)
	w.optUint32(p.Available)
	w.ifTrue(p.Drain)
	w.ifTrue(p.Echo)
	if p.Properties != nil {
		w.field()
		w.dst = append(w.dst, p.Properties...)
	}
	return w.end()
}

// Transfer carries a message, or a part of one.
//
// Spec: 2.7.5.
type Transfer struct {
	Handle        uint32
	DeliveryID    OptUint32
	DeliveryTag   []byte // nil if absent; aliases the frame
	MessageFormat OptUint32
	Settled       bool
	HasSettled    bool // the settled field is there
	More          bool
	RcvSettleMode OptUint32
	State         State
	Resume        bool
	Aborted       bool
	Batchable     bool
	// Payload is what follows the list; it aliases the frame. Append does not write it.
	Payload []byte
}

// Decode overwrites t with the transfer in body. It allocates nothing unless it
// fails or the state has parts of its own, and fails if body is anything else, the
// handle is absent, or the settlement mode is none of the standard's.
func (t *Transfer) Decode(body []byte) error {
	*t = Transfer{}
	var f fields
	payload, err := f.openFields("transfer", CodeTransfer, body)
	if err != nil {
		return err
	}
	t.Payload = payload
	t.Handle = f.uint32Must()
	t.DeliveryID = f.optUint32()
	t.DeliveryTag, _ = f.binary()
	t.MessageFormat = f.optUint32()
	t.Settled, t.HasSettled = f.bool()
	t.More = f.isTrue()
	if f.left == 0 {
		return f.end()
	}
	if v, ok := f.uint8(); ok {
		t.RcvSettleMode = Some(uint32(f.atMost(v, RcvSecond)))
	}
	f.state(&t.State)
	t.Resume = f.isTrue()
	t.Aborted = f.isTrue()
	t.Batchable = f.isTrue()
	return f.end()
}

// Append appends the descriptor and list of t.
func (t *Transfer) Append(dst []byte) []byte {
	w := beginList(dst, CodeTransfer)
	w.uint32(t.Handle)
	w.optUint32(t.DeliveryID)
	w.ifBinary(t.DeliveryTag)
	w.optUint32(t.MessageFormat)
	if t.Settled || t.HasSettled {
		w.bool(t.Settled)
	} else {
		w.skip()
	}
	w.ifTrue(t.More)
	if t.RcvSettleMode.Set {
		w.uint8(uint8(t.RcvSettleMode.Value))
	} else {
		w.skip()
	}
	w.ifState(&t.State)
	w.ifTrue(t.Resume)
	w.ifTrue(t.Aborted)
	w.ifTrue(t.Batchable)
	return w.end()
}

// Disposition tells the peer of states and settlement of a range of deliveries.
//
// Spec: 2.7.6.
type Disposition struct {
	Role      Role // of the end that sends it
	First     uint32
	Last      uint32 // First if absent
	Settled   bool
	State     State
	Batchable bool
}

// Decode overwrites d with the disposition in body. It allocates nothing unless
// it fails or the state has parts of its own, and fails if body is anything else
// or a mandatory field is absent. It does not compare Last with First.
func (d *Disposition) Decode(body []byte) error {
	*d = Disposition{}
	var f fields
	if err := f.openWhole("disposition", CodeDisposition, body); err != nil {
		return err
	}
	d.Role = f.role()
	d.First = f.uint32Must()
	d.Last = f.uint32Or(d.First)
	d.Settled = f.isTrue()
	f.state(&d.State)
	d.Batchable = f.isTrue()
	return f.end()
}

// Append appends the descriptor and list of d.
func (d *Disposition) Append(dst []byte) []byte {
	w := beginList(dst, CodeDisposition)
	w.bool(bool(d.Role))
	w.uint32(d.First)
	w.uint32Unless(d.Last, d.First)
	w.ifTrue(d.Settled)
	w.ifState(&d.State)
	w.ifTrue(d.Batchable)
	return w.end()
}
