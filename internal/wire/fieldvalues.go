package wire

import "bytes"

// raw returns the octets of a variable-width field whose code passes is. They alias.
func (f *fields) raw(is func(byte) bool, want string) ([]byte, bool) {
	c, ok := f.next()
	if !ok {
		return nil, false
	}
	if !is(c) {
		f.wrong(c, want)
		return nil, false
	}
	b, n, err := variable(c, f.b)
	if err != nil {
		f.fail(err)
		return nil, false
	}
	f.b = f.b[n:]
	return b, true
}

func (f *fields) string() (string, bool) {
	b, ok := f.raw(isString, "string")
	return string(b), ok
}

func (f *fields) symbol() (Symbol, bool) {
	b, ok := f.raw(isSymbol, "symbol")
	return Symbol(b), ok
}

// binary returns the field's octets, aliased; not nil if it is there.
func (f *fields) binary() ([]byte, bool) { return f.raw(isBinary, "binary") }

// binaryCopy is binary in memory of its own, nil if absent.
func (f *fields) binaryCopy() ([]byte, bool) {
	b, ok := f.binary()
	return bytes.Clone(b), ok
}

// value takes a field of any type and returns it encoded, nil if it is absent.
func (f *fields) value() []byte {
	f.index++
	if f.left == 0 || f.err != nil {
		return nil
	}
	f.left--
	n, err := f.scan.value(f.b, 0)
	if err != nil {
		f.fail(err)
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	if b[0] == fmtNull {
		return nil
	}
	return b
}

// mapValue is value for a map.
func (f *fields) mapValue() []byte {
	b := f.value()
	if b != nil && shapes[b[0]] != shapeMap {
		f.wrong(b[0], "map")
		return nil
	}
	return b
}

func (f *fields) mapping() Map {
	if b := f.mapValue(); b != nil {
		return buildMap(b)
	}
	return nil
}

// symbols reads a "multiple" field: one symbol or an array of them.
//
// Spec: 1.5.
func (f *fields) symbols() []Symbol {
	b := f.value()
	if b == nil {
		return nil
	}
	if isSymbol(b[0]) {
		raw, _, _ := variable(b[0], b[1:])
		return []Symbol{Symbol(raw)}
	}
	if shapes[b[0]] != shapeArray {
		f.wrong(b[0], "symbol or array of symbols")
		return nil
	}
	count, elems, _, _ := head(b[0], b[1:])
	c := elems[0]
	if !isSymbol(c) {
		f.fail(malformed("array of format code 0x%02x where symbols are due", c))
		return nil
	}
	out := make([]Symbol, count)
	elems = elems[1:]
	for i := range out {
		raw, n, _ := variable(c, elems)
		out[i], elems = Symbol(raw), elems[n:]
	}
	return out
}
