package wire

import "encoding/binary"

// OptUint32 is an unsigned number that may be absent.
type OptUint32 struct {
	Value uint32
	Set   bool
}

// Some is a number that is present.
func Some(v uint32) OptUint32 { return OptUint32{Value: v, Set: true} }

// fields reads the list of a composite type, field by field. The first fault
// sticks: what is read after it is absent, and end returns it.
//
// Spec: 1.4.
type fields struct {
	name  string // of the composite type, for errors
	b     []byte // the fields not yet read
	left  uint32 // how many the list still has
	index int    // of the field read last, from 1
	err   error
	scan  scanner
}

// openFields opens the composite of type code at the start of body, for a fresh f.
// rest is what follows it.
func (f *fields) openFields(name string, code uint64, body []byte) (rest []byte, err error) {
	got, list, err := PeekDescriptor(body)
	if err != nil {
		return nil, within(err, "%s", name)
	}
	if got != code {
		return nil, malformed("descriptor 0x%02x where %s is due", got, name)
	}
	return f.openList(name, list)
}

// openList opens the list at the start of b.
func (f *fields) openList(name string, b []byte) (rest []byte, err error) {
	f.name = name
	f.scan = scanner{empty: maxEmptyElems, values: maxPerformativeValues}
	if len(b) == 0 {
		return nil, within(errShort(), "%s", name)
	}
	c := b[0]
	if c == fmtList0 {
		return b[1:], nil
	}
	if shapes[c] != shapeList {
		return nil, malformed("%s: format code 0x%02x is no list", name, c)
	}
	count, items, n, err := head(c, b[1:])
	if err != nil {
		return nil, within(err, "%s", name)
	}
	f.b, f.left = items, count
	return b[1+n:], nil
}

// openWhole is openFields for a composite that is all of body.
func (f *fields) openWhole(name string, code uint64, body []byte) error {
	rest, err := f.openFields(name, code, body)
	if err == nil && len(rest) != 0 {
		err = malformed("%s: %d octets behind it", name, len(rest))
	}
	return err
}

// end returns the first fault, fields beyond those read included.
func (f *fields) end() error {
	if f.err == nil && f.left != 0 {
		f.err = malformed("%s: %d fields too many", f.name, f.left)
	}
	if f.err == nil && len(f.b) != 0 {
		f.err = malformed("%s: %d octets behind its last field", f.name, len(f.b))
	}
	return f.err
}

// next takes a field's format code. It reports false if the field is absent.
func (f *fields) next() (c byte, ok bool) {
	f.index++
	if f.left == 0 || f.err != nil {
		return 0, false
	}
	f.left--
	if len(f.b) == 0 {
		f.fail(errShort())
		return 0, false
	}
	c = f.b[0]
	f.b = f.b[1:]
	return c, c != fmtNull
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = within(err, "%s field %d", f.name, f.index)
	}
}

func (f *fields) wrong(c byte, want string) {
	f.fail(malformed("format code 0x%02x is no %s", c, want))
}

// must fails unless the field read last, which the standard makes mandatory, was there.
func (f *fields) must(ok bool) {
	if !ok && f.err == nil {
		f.fail(malformed("mandatory field is absent"))
	}
}

// octets takes n octets.
func (f *fields) octets(n int) ([]byte, bool) {
	if len(f.b) < n {
		f.fail(errShort())
		return nil, false
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b, true
}

func (f *fields) uint32() (uint32, bool) {
	c, ok := f.next()
	if !ok {
		return 0, false
	}
	switch c {
	case fmtUint0:
		return 0, true
	case fmtSmallUint:
		if b, ok := f.octets(1); ok {
			return uint32(b[0]), true
		}
	case fmtUint:
		if b, ok := f.octets(4); ok {
			return binary.BigEndian.Uint32(b), true
		}
	default:
		f.wrong(c, "uint")
	}
	return 0, false
}

func (f *fields) uint32Or(absent uint32) uint32 {
	if v, ok := f.uint32(); ok {
		return v
	}
	return absent
}

func (f *fields) uint32Must() uint32 {
	v, ok := f.uint32()
	f.must(ok)
	return v
}

func (f *fields) optUint32() OptUint32 {
	v, ok := f.uint32()
	return OptUint32{Value: v, Set: ok}
}

func (f *fields) uint64() (uint64, bool) {
	c, ok := f.next()
	if !ok {
		return 0, false
	}
	switch c {
	case fmtUlong0:
		return 0, true
	case fmtSmallUlong:
		if b, ok := f.octets(1); ok {
			return uint64(b[0]), true
		}
	case fmtUlong:
		if b, ok := f.octets(8); ok {
			return binary.BigEndian.Uint64(b), true
		}
	default:
		f.wrong(c, "ulong")
	}
	return 0, false
}

func (f *fields) uint16() (uint16, bool) {
	c, ok := f.next()
	if !ok {
		return 0, false
	}
	if c != fmtUshort {
		f.wrong(c, "ushort")
		return 0, false
	}
	if b, ok := f.octets(2); ok {
		return binary.BigEndian.Uint16(b), true
	}
	return 0, false
}

func (f *fields) uint8() (uint8, bool) {
	c, ok := f.next()
	if !ok {
		return 0, false
	}
	if c != fmtUbyte {
		f.wrong(c, "ubyte")
		return 0, false
	}
	if b, ok := f.octets(1); ok {
		return b[0], true
	}
	return 0, false
}

// bool returns the field, and whether it is there.
func (f *fields) bool() (v, ok bool) {
	c, ok := f.next()
	if !ok {
		return false, false
	}
	switch c {
	case fmtTrue:
		return true, true
	case fmtFalse:
		return false, true
	case fmtBool:
		b, ok := f.octets(1)
		if ok && b[0] > 1 {
			f.fail(malformed("boolean octet 0x%02x", b[0]))
			return false, false
		}
		return ok && b[0] == 1, ok
	}
	f.wrong(c, "boolean")
	return false, false
}

// isTrue is bool for a field that is false when absent.
func (f *fields) isTrue() bool {
	v, _ := f.bool()
	return v
}
