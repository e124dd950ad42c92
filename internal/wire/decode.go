package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"
)

// DecodeValue decodes the first value of b and returns what follows it. The value
// shares no memory with b.
//
// Null is nil; boolean is bool; ubyte, ushort, uint, ulong, byte, short, int, long
// are uint8 to uint64 and int8 to int64; float and double are float32 and float64;
// decimals, char and uuid are the types of this package; timestamp is a UTC
// [time.Time] in milliseconds; binary is []byte, string is string, symbol is
// [Symbol]; compound types are [List], [Map], [Array] and [Described].
//
// Spec: 1.2 to 1.6.
func DecodeValue(b []byte) (v any, rest []byte, err error) {
	if rest, err = SkipValue(b); err != nil {
		return nil, nil, err
	}
	v, _ = build(b)
	return v, rest, nil
}

// DecodeMap decodes an encoded map, which must be all of b. Null and zero octets
// are a nil Map.
//
// Spec: 1.6.23.
func DecodeMap(b []byte) (Map, error) {
	if len(b) == 0 {
		return nil, nil
	}
	s := newScanner()
	n, err := s.value(b, 0)
	if err != nil {
		return nil, err
	}
	if n != len(b) {
		return nil, malformed("%d octets behind the map", len(b)-n)
	}
	if b[0] != fmtNull && shapes[b[0]] != shapeMap {
		return nil, malformed("format code 0x%02x is no map", b[0])
	}
	return buildMap(b), nil
}

// buildMap builds a map, or nil from null, that a scanner has checked.
func buildMap(b []byte) Map {
	if b[0] == fmtNull {
		return nil
	}
	count, items, _, _ := head(b[0], b[1:])
	return buildEntries(count, items)
}

// Values that a list of one or two octets an item could ask for in great number
// are boxed once, so that memory stays in proportion to the input.
var (
	emptyList   any = List{}
	emptyMap    any = Map{}
	emptyBinary any = []byte{}

	negativeInts, negativeLongs = func() (i, l [128]any) {
		for k := range i {
			i[k], l[k] = int32(k-128), int64(k-128)
		}
		return i, l
	}()
)

// build decodes a value that a scanner has checked and returns its length.
func build(b []byte) (any, int) {
	if b[0] == fmtDescribed {
		d, n := build(b[1:])
		v, m := build(b[1+n:])
		return Described{Descriptor: d, Value: v}, 1 + n + m
	}
	v, n := buildBody(b[0], b[1:])
	return v, n + 1
}

func buildBody(c byte, b []byte) (any, int) {
	shape := shapes[c]
	if shape&fixed != 0 {
		return buildFixed(c, b), int(shape &^ fixed)
	}
	switch shape {
	case shapeVar8:
		n := 1 + int(b[0])
		return buildVariable(c, b[1:n]), n
	case shapeVar32:
		n := 4 + int(binary.BigEndian.Uint32(b))
		return buildVariable(c, b[4:n]), n
	}
	count, items, n, _ := head(c, b)
	switch {
	case shape == shapeArray:
		return buildArray(count, items), n
	case count == 0 && shape == shapeMap:
		return emptyMap, n
	case count == 0:
		return emptyList, n
	case shape == shapeMap:
		return buildEntries(count, items), n
	}
	list := make(List, count)
	for i := range list {
		v, m := build(items)
		list[i], items = v, items[m:]
	}
	return list, n
}

func buildEntries(count uint32, items []byte) Map {
	m := make(Map, count/2)
	for i := range m {
		k, n := build(items)
		v, o := build(items[n:])
		m[i], items = Entry{Key: k, Value: v}, items[n+o:]
	}
	return m
}

func buildArray(count uint32, b []byte) Array {
	var a Array
	if b[0] == fmtDescribed {
		d, n := build(b[1:])
		a.Descriptor, b = d, b[1+n:]
	}
	a.Code, b = b[0], b[1:]
	if count == 0 {
		return a
	}
	a.Elems = make([]any, count)
	for i := range a.Elems {
		v, n := buildBody(a.Code, b)
		a.Elems[i], b = v, b[n:]
	}
	return a
}

func buildVariable(c byte, b []byte) any {
	switch c &^ wideBit {
	case fmtStr8:
		return string(b)
	case fmtSym8:
		return Symbol(b)
	}
	if len(b) == 0 {
		return emptyBinary
	}
	return bytes.Clone(b)
}

func buildFixed(c byte, b []byte) any {
	switch c {
	case fmtTrue:
		return true
	case fmtFalse:
		return false
	case fmtUint0:
		return uint32(0)
	case fmtUlong0:
		return uint64(0)
	case fmtList0:
		return emptyList
	case fmtUbyte:
		return b[0]
	case fmtByte:
		return int8(b[0])
	case fmtSmallUint:
		return uint32(b[0])
	case fmtSmallUlong:
		return uint64(b[0])
	case fmtSmallInt:
		if v := int8(b[0]); v < 0 {
			return negativeInts[int(v)+128]
		}
		return int32(b[0])
	case fmtSmallLong:
		if v := int8(b[0]); v < 0 {
			return negativeLongs[int(v)+128]
		}
		return int64(b[0])
	case fmtBool:
		return b[0] == 1
	}
	return buildWide(c, b)
}

// buildWide is buildFixed for two octets and more.
func buildWide(c byte, b []byte) any {
	be := binary.BigEndian
	switch c {
	case fmtUshort:
		return be.Uint16(b)
	case fmtShort:
		return int16(be.Uint16(b))
	case fmtUint:
		return be.Uint32(b)
	case fmtInt:
		return int32(be.Uint32(b))
	case fmtFloat:
		return math.Float32frombits(be.Uint32(b))
	case fmtChar:
		return Char(be.Uint32(b))
	case fmtDecimal32:
		return Decimal32(b[:4])
	case fmtUlong:
		return be.Uint64(b)
	case fmtLong:
		return int64(be.Uint64(b))
	case fmtDouble:
		return math.Float64frombits(be.Uint64(b))
	case fmtTimestamp:
		return timestamp(b)
	case fmtDecimal64:
		return Decimal64(b[:8])
	case fmtDecimal128:
		return Decimal128(b[:16])
	case fmtUUID:
		return UUID(b[:16])
	}
	return nil
}

// timestamp reads the eight octets of a timestamp.
//
// Spec: 1.6.17.
func timestamp(b []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC()
}
