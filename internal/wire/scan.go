package wire

import (
	"encoding/binary"
	"math"
)

const (
	// maxEmptyElems bounds the elements without octets of all arrays in one call:
	// they cost the sender nothing and the receiver 16 octets each.
	maxEmptyElems = 1 << 14
	// maxPerformativeValues bounds what one performative makes us build.
	maxPerformativeValues = 1 << 14
)

// SkipValue returns what follows the first value of b. It checks everything that
// [DecodeValue] relies on (lengths, counts, format codes, nesting) and allocates
// nothing unless it fails.
func SkipValue(b []byte) (rest []byte, err error) {
	s := newScanner()
	n, err := s.value(b, 0)
	if err != nil {
		return nil, err
	}
	return b[n:], nil
}

// scanner walks encoded values. Its counters run over all values it is asked for.
type scanner struct {
	empty  int  // array elements without octets that may still come
	values int  // values of any kind that may still come
	strict bool // what Check looks at too
}

func newScanner() scanner {
	return scanner{empty: maxEmptyElems, values: math.MaxInt}
}

// value returns the length of the value at the start of b, which stands inside
// depth containers.
func (s *scanner) value(b []byte, depth int) (int, error) {
	if len(b) == 0 {
		return 0, errShort()
	}
	c := b[0]
	if c == fmtDescribed {
		return s.described(b, depth)
	}
	n, err := s.body(c, b[1:], depth)
	if err != nil {
		return 0, err
	}
	return n + 1, nil
}

// body returns the length of what follows format code c.
func (s *scanner) body(c byte, b []byte, depth int) (int, error) {
	if s.values--; s.values < 0 {
		return 0, malformed("more than %d values", maxPerformativeValues)
	}
	shape := shapes[c]
	if shape&fixed != 0 {
		w := int(shape &^ fixed)
		if len(b) < w {
			return 0, errShort()
		}
		if c == fmtBool && b[0] > 1 {
			return 0, malformed("boolean octet 0x%02x", b[0])
		}
		if s.strict && c == fmtChar {
			return w, codePoints(b[:w])
		}
		return w, nil
	}
	switch shape {
	case shapeVar8, shapeVar32:
		return s.variable(c, b)
	case shapeList, shapeMap:
		return s.compound(c, b, depth)
	case shapeArray:
		return s.array(c, b, depth)
	}
	return 0, malformed("unknown format code 0x%02x", c)
}

// variable returns the length of a binary, string or symbol.
func (s *scanner) variable(c byte, b []byte) (int, error) {
	v, n, err := variable(c, b)
	if err != nil || !s.strict {
		return n, err
	}
	return n, checkText(c, v)
}

func (s *scanner) described(b []byte, depth int) (int, error) {
	if depth >= MaxDepth {
		return 0, errDepth()
	}
	if s.values--; s.values < 0 {
		return 0, malformed("more than %d values", maxPerformativeValues)
	}
	n, err := s.value(b[1:], depth+1)
	if err != nil {
		return 0, err
	}
	m, err := s.value(b[1+n:], depth+1)
	if err != nil {
		return 0, err
	}
	return 1 + n + m, nil
}

func errDepth() error { return malformed("nested deeper than %d", MaxDepth) }

// compound walks the items of a list or map.
func (s *scanner) compound(c byte, b []byte, depth int) (int, error) {
	if depth >= MaxDepth {
		return 0, errDepth()
	}
	count, items, n, err := head(c, b)
	if err != nil {
		return 0, err
	}
	if uint64(count) > uint64(len(items)) {
		return 0, malformed("%d items in %d octets", count, len(items))
	}
	if count%2 != 0 && shapes[c] == shapeMap {
		return 0, malformed("map of %d items", count)
	}
	all := items
	for range count {
		m, err := s.value(items, depth+1)
		if err != nil {
			return 0, err
		}
		items = items[m:]
	}
	if len(items) != 0 {
		return 0, malformed("%d octets behind the last item", len(items))
	}
	if s.strict && shapes[c] == shapeMap {
		return n, distinctKeys(count/2, all)
	}
	return n, nil
}

// head splits the body of a list, map or array. n is its whole length.
func head(c byte, b []byte) (count uint32, items []byte, n int, err error) {
	if c&wideBit == 0 {
		if len(b) < 2 || len(b)-1 < int(b[0]) {
			return 0, nil, 0, errShort()
		}
		n = 1 + int(b[0])
		if n < 2 {
			return 0, nil, 0, malformed("size %d has no room for a count", b[0])
		}
		return uint32(b[1]), b[2:n], n, nil
	}
	if len(b) < 8 {
		return 0, nil, 0, errShort()
	}
	size := binary.BigEndian.Uint32(b)
	if uint64(len(b)-4) < uint64(size) {
		return 0, nil, 0, errShort()
	}
	if size < 4 {
		return 0, nil, 0, malformed("size %d has no room for a count", size)
	}
	n = 4 + int(size)
	return binary.BigEndian.Uint32(b[4:]), b[8:n], n, nil
}

// array walks the elements of an array.
func (s *scanner) array(c byte, b []byte, depth int) (int, error) {
	if depth >= MaxDepth {
		return 0, errDepth()
	}
	count, elems, n, err := head(c, b)
	if err != nil {
		return 0, err
	}
	code, elems, err := s.constructor(elems, depth+1)
	if err != nil {
		return 0, err
	}
	if shape := shapes[code]; shape&fixed != 0 {
		return n, s.fixedElems(code, count, elems)
	}
	if uint64(count) > uint64(len(elems)) {
		return 0, malformed("%d elements in %d octets", count, len(elems))
	}
	for range count {
		m, err := s.body(code, elems, depth+1)
		if err != nil {
			return 0, err
		}
		elems = elems[m:]
	}
	if len(elems) != 0 {
		return 0, malformed("%d octets behind the last element", len(elems))
	}
	return n, nil
}

// constructor reads the constructor that an array's elements share.
func (s *scanner) constructor(b []byte, depth int) (code byte, rest []byte, err error) {
	if len(b) > 0 && b[0] == fmtDescribed {
		n, err := s.value(b[1:], depth)
		if err != nil {
			return 0, nil, err
		}
		b = b[1+n:]
	}
	if len(b) == 0 {
		return 0, nil, errShort()
	}
	if shapes[b[0]] == shapeNone {
		return 0, nil, malformed("array of unknown format code 0x%02x", b[0])
	}
	return b[0], b[1:], nil
}

// fixedElems checks elements of one fixed width without visiting them.
func (s *scanner) fixedElems(code byte, count uint32, elems []byte) error {
	w := uint64(shapes[code] &^ fixed)
	if uint64(count)*w != uint64(len(elems)) {
		return malformed("%d elements of %d octets in %d octets", count, w, len(elems))
	}
	if w == 0 {
		if uint64(count) > uint64(s.empty) {
			return malformed("array of %d elements without octets", count)
		}
		s.empty -= int(count)
	}
	if uint64(count) > uint64(s.values) {
		return malformed("more than %d values", maxPerformativeValues)
	}
	s.values -= int(count)
	if code == fmtBool {
		for _, v := range elems {
			if v > 1 {
				return malformed("boolean octet 0x%02x", v)
			}
		}
	}
	if s.strict && code == fmtChar {
		return codePoints(elems)
	}
	return nil
}
