package wire

// DefaultPriority is the priority of a message without one.
const DefaultPriority uint8 = 4

// Header is what intermediaries may change about a delivery.
//
// Spec: 3.2.1.
type Header struct {
	Durable       bool
	Priority      uint8  // absent: DefaultPriority
	TTL           uint32 // milliseconds
	HasTTL        bool
	FirstAcquirer bool
	DeliveryCount uint32
}

// Decode overwrites h with an encoded header without its descriptor, which must
// be all of b. It allocates nothing unless it fails.
func (h *Header) Decode(b []byte) error {
	*h = Header{}
	var f fields
	rest, err := f.openList("header", b)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return malformed("header: %d octets behind it", len(rest))
	}
	h.fields(&f)
	return f.end()
}

func (h *Header) fields(f *fields) {
	h.Durable = f.isTrue()
	h.Priority = DefaultPriority
	if v, ok := f.uint8(); ok {
		h.Priority = v
	}
	h.TTL, h.HasTTL = f.uint32()
	h.FirstAcquirer = f.isTrue()
	h.DeliveryCount = f.uint32Or(0)
}

// Append appends the whole section. A TTL of 0 is left off unless HasTTL.
func (h *Header) Append(dst []byte) []byte {
	w := beginList(dst, CodeHeader)
	w.ifTrue(h.Durable)
	w.uint8Unless(h.Priority, DefaultPriority)
	if h.HasTTL || h.TTL != 0 {
		w.uint32(h.TTL)
	} else {
		w.skip()
	}
	w.ifTrue(h.FirstAcquirer)
	w.uint32Unless(h.DeliveryCount, 0)
	return w.end()
}
