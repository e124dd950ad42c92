package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

func appendArray(dst []byte, a Array, depth int) ([]byte, error) {
	if a.Code == 0 && len(a.Elems) == 0 {
		a.Code = fmtNull
	}
	if shapes[a.Code] == shapeNone {
		return nil, fmt.Errorf("cannot encode an array of format code 0x%02x", a.Code)
	}
	if shapes[a.Code] == fixed && len(a.Elems) > maxEmptyElems {
		return nil, fmt.Errorf("cannot encode an array of %d elements without octets", len(a.Elems))
	}
	out, err := appendElems(dst, a, depth)
	if errors.Is(err, errNarrow) {
		a.Code |= wideBit
		return appendElems(dst, a, depth)
	}
	return out, err
}

func appendElems(dst []byte, a Array, depth int) (_ []byte, err error) {
	start := len(dst)
	dst = append(dst, fmtArray8, 0, 0)
	if a.Descriptor != nil {
		if dst, err = appendValue(append(dst, fmtDescribed), a.Descriptor, depth+1); err != nil {
			return nil, err
		}
	}
	dst = append(dst, a.Code)
	for _, v := range a.Elems {
		if dst, err = appendElem(dst, a.Code, v, depth+1); err != nil {
			return nil, err
		}
	}
	return closeCompound(dst, start, len(a.Elems)), nil
}

// appendElem appends v as format code c has it, without the code.
func appendElem(dst []byte, c byte, v any, depth int) ([]byte, error) {
	switch shapes[c] {
	case shapeVar8, shapeVar32:
		return appendVariableElem(dst, c, v)
	case shapeList, shapeMap, shapeArray:
		return appendCompoundElem(dst, c, v, depth)
	}
	return appendFixedElem(dst, c, v)
}

func misfit(c byte, v any) error {
	return fmt.Errorf("cannot encode a Go value of type %T in an array of format code 0x%02x", v, c)
}

func appendVariableElem(dst []byte, c byte, v any) ([]byte, error) {
	var octets string
	switch v := v.(type) {
	case []byte:
		if !isBinary(c) {
			return nil, misfit(c, v)
		}
		octets = string(v)
	case string:
		if !isString(c) {
			return nil, misfit(c, v)
		}
		octets = v
	case Symbol:
		if !isSymbol(c) {
			return nil, misfit(c, v)
		}
		octets = string(v)
	default:
		return nil, misfit(c, v)
	}
	if c&wideBit != 0 {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(octets)))
	} else if len(octets) > math.MaxUint8 {
		return nil, errNarrow
	} else {
		dst = append(dst, byte(len(octets)))
	}
	return append(dst, octets...), nil
}

// appendCompoundElem encodes v as a value of its own and rewrites its head, which
// closeCompound made as small as it can be.
func appendCompoundElem(dst []byte, c byte, v any, depth int) ([]byte, error) {
	if depth >= MaxDepth {
		return nil, fmt.Errorf("cannot encode a value nested deeper than %d", MaxDepth)
	}
	var one []byte
	var err error
	switch v := v.(type) {
	case List:
		if shapes[c] != shapeList {
			return nil, misfit(c, v)
		}
		one, err = appendList(nil, v, depth)
		if len(v) == 0 {
			one = []byte{fmtList8, 1, 0}
		}
	case Map:
		if shapes[c] != shapeMap {
			return nil, misfit(c, v)
		}
		one, err = appendMap(nil, v, depth)
	case Array:
		if shapes[c] != shapeArray {
			return nil, misfit(c, v)
		}
		one, err = appendArray(nil, v, depth)
	default:
		return nil, misfit(c, v)
	}
	if err != nil {
		return nil, err
	}
	if c&wideBit == one[0]&wideBit {
		return append(dst, one[1:]...), nil
	}
	if c&wideBit == 0 {
		return nil, errNarrow
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(one[1])+3)
	dst = binary.BigEndian.AppendUint32(dst, uint32(one[2]))
	return append(dst, one[3:]...), nil
}

// appendFixedElem takes v if it is what c decodes to.
func appendFixedElem(dst []byte, c byte, v any) ([]byte, error) {
	w := int(shapes[c] &^ fixed)
	var buf [16]byte
	if l, ok := v.(List); ok && c == fmtList0 && len(l) == 0 {
		return dst, nil
	}
	one, ok := appendScalar(buf[:0], v)
	if !ok {
		return nil, misfit(c, v)
	}
	body, ok := fixedBody(c, one[0], one[1:], w)
	if !ok {
		return nil, misfit(c, v)
	}
	return append(dst, body...), nil
}

// fixedBody turns a scalar encoded in the smallest form, code and body, into the
// w octets of the form c.
func fixedBody(c, code byte, body []byte, w int) ([]byte, bool) {
	if code == c {
		return body, true
	}
	if family(c) == 0 || family(c) != family(code) {
		return nil, false
	}
	var out [8]byte
	switch code {
	case fmtTrue:
		out[7] = 1
	case fmtSmallUint, fmtSmallUlong:
		out[7] = body[0]
	case fmtSmallInt, fmtSmallLong:
		binary.BigEndian.PutUint64(out[:], uint64(int64(int8(body[0]))))
	case fmtUint0, fmtUlong0, fmtFalse:
	default:
		return nil, false // the value needs more octets than c has
	}
	if w == 0 && !(out == [8]byte{}) || c == fmtTrue || c == fmtFalse {
		return nil, false
	}
	return out[8-w:], true
}

// family is the widest format code of c's type for types with several.
func family(c byte) byte {
	switch c {
	case fmtTrue, fmtFalse, fmtBool:
		return fmtBool
	case fmtUint0, fmtSmallUint, fmtUint:
		return fmtUint
	case fmtUlong0, fmtSmallUlong, fmtUlong:
		return fmtUlong
	case fmtSmallInt, fmtInt:
		return fmtInt
	case fmtSmallLong, fmtLong:
		return fmtLong
	}
	return 0
}
