package wire

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// AppendValue appends any value that [DecodeValue] returns. It also takes
// []Symbol and []string (arrays), []any (a list), map[string]any and
// map[Symbol]any (maps, in key order), int (long), uint (ulong) and [16]byte (uuid).
//
// It returns an error, and dst unchanged, if a value is of another type, does not
// fit its array's format code, or nests deeper than [MaxDepth].
func AppendValue(dst []byte, v any) ([]byte, error) {
	out, err := appendValue(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	if dst, ok := appendScalar(dst, v); ok {
		return dst, nil
	}
	if l, ok := v.(List); ok && len(l) == 0 {
		return append(dst, fmtList0), nil // nests nothing
	}
	if depth >= MaxDepth {
		return nil, fmt.Errorf("cannot encode a value nested deeper than %d", MaxDepth)
	}
	switch v := v.(type) {
	case []Symbol:
		return AppendSymbols(dst, v), nil
	case []string:
		a := Array{Code: fmtStr8, Elems: make([]any, len(v))}
		for i := range v {
			a.Elems[i] = v[i]
		}
		return appendArray(dst, a, depth)
	case List:
		return appendList(dst, v, depth)
	case []any:
		return appendList(dst, v, depth)
	case Map:
		return appendMap(dst, v, depth)
	case map[string]any:
		return appendMap(dst, ordered(v), depth)
	case map[Symbol]any:
		return appendMap(dst, ordered(v), depth)
	case Array:
		return appendArray(dst, v, depth)
	case Described:
		dst, err := appendValue(append(dst, fmtDescribed), v.Descriptor, depth+1)
		if err != nil {
			return nil, err
		}
		return appendValue(dst, v.Value, depth+1)
	}
	return nil, fmt.Errorf("cannot encode a Go value of type %T", v)
}

func ordered[K cmp.Ordered](m map[K]any) Map {
	out := make(Map, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Entry{Key: k, Value: m[k]})
	}
	return out
}

// appendScalar reports false for what is no scalar.
func appendScalar(dst []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case nil:
		return AppendNull(dst), true
	case bool:
		return AppendBool(dst, v), true
	case string:
		return AppendString(dst, v), true
	case Symbol:
		return AppendSymbol(dst, v), true
	case []byte:
		return AppendBinary(dst, v), true
	case int:
		return AppendLong(dst, int64(v)), true
	case int8:
		return AppendByte(dst, v), true
	case int16:
		return AppendShort(dst, v), true
	case int32:
		return AppendInt(dst, v), true
	case int64:
		return AppendLong(dst, v), true
	case uint:
		return AppendUlong(dst, uint64(v)), true
	case uint8:
		return AppendUbyte(dst, v), true
	case uint16:
		return AppendUshort(dst, v), true
	case uint32:
		return AppendUint(dst, v), true
	case uint64:
		return AppendUlong(dst, v), true
	}
	return appendRareScalar(dst, v)
}

func appendRareScalar(dst []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case float32:
		return AppendFloat(dst, v), true
	case float64:
		return AppendDouble(dst, v), true
	case time.Time:
		return AppendTimestamp(dst, v), true
	case UUID:
		return AppendUUID(dst, v), true
	case [16]byte:
		return AppendUUID(dst, v), true
	case Char:
		return AppendChar(dst, v), true
	case Decimal32:
		return append(append(dst, fmtDecimal32), v[:]...), true
	case Decimal64:
		return append(append(dst, fmtDecimal64), v[:]...), true
	case Decimal128:
		return append(append(dst, fmtDecimal128), v[:]...), true
	}
	return dst, false
}

func appendList(dst []byte, l []any, depth int) ([]byte, error) {
	if len(l) == 0 {
		return append(dst, fmtList0), nil
	}
	start := len(dst)
	dst, err := appendItems(append(dst, fmtList8, 0, 0), l, depth)
	if err != nil {
		return nil, err
	}
	return closeCompound(dst, start, len(l)), nil
}

func appendItems(dst []byte, l []any, depth int) (_ []byte, err error) {
	for _, v := range l {
		if dst, err = appendValue(dst, v, depth+1); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func appendMap(dst []byte, m Map, depth int) ([]byte, error) {
	start := len(dst)
	dst, err := appendEntries(append(dst, fmtMap8, 0, 0), m, depth)
	if err != nil {
		return nil, err
	}
	return closeCompound(dst, start, 2*len(m)), nil
}

func appendEntries(dst []byte, m Map, depth int) (_ []byte, err error) {
	for i := range m {
		if dst, err = appendValue(dst, m[i].Key, depth+1); err != nil {
			return nil, err
		}
		if dst, err = appendValue(dst, m[i].Value, depth+1); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// errNarrow means that an element does not fit the one-octet form.
var errNarrow = errors.New("element too long for its format code")
