package wire

import (
	"encoding/binary"
	"math"
	"time"
)

// AppendNull appends a null.
//
// Spec: 1.6.1.
func AppendNull(dst []byte) []byte { return append(dst, fmtNull) }

// AppendBool appends a boolean.
//
// Spec: 1.6.2.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, fmtTrue)
	}
	return append(dst, fmtFalse)
}

// AppendUbyte appends a ubyte.
//
// Spec: 1.6.3.
func AppendUbyte(dst []byte, v uint8) []byte { return append(dst, fmtUbyte, v) }

// AppendUshort appends a ushort.
//
// Spec: 1.6.4.
func AppendUshort(dst []byte, v uint16) []byte {
	return append(dst, fmtUshort, byte(v>>8), byte(v))
}

// AppendUint appends a uint in one, two or five octets.
//
// Spec: 1.6.5.
func AppendUint(dst []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(dst, fmtUint0)
	case v <= math.MaxUint8:
		return append(dst, fmtSmallUint, byte(v))
	}
	return append(dst, fmtUint, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// AppendUlong appends a ulong in one, two or nine octets.
//
// Spec: 1.6.6.
func AppendUlong(dst []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(dst, fmtUlong0)
	case v <= math.MaxUint8:
		return append(dst, fmtSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, fmtUlong), v)
}

// AppendByte appends a byte, which is signed.
//
// Spec: 1.6.7.
func AppendByte(dst []byte, v int8) []byte { return append(dst, fmtByte, byte(v)) }

// AppendShort appends a short.
//
// Spec: 1.6.8.
func AppendShort(dst []byte, v int16) []byte {
	return append(dst, fmtShort, byte(v>>8), byte(v))
}

// AppendInt appends an int in two or five octets.
//
// Spec: 1.6.9.
func AppendInt(dst []byte, v int32) []byte {
	if v == int32(int8(v)) {
		return append(dst, fmtSmallInt, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, fmtInt), uint32(v))
}

// AppendLong appends a long in two or nine octets.
//
// Spec: 1.6.10.
func AppendLong(dst []byte, v int64) []byte {
	if v == int64(int8(v)) {
		return append(dst, fmtSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, fmtLong), uint64(v))
}

// AppendFloat appends a float.
//
// Spec: 1.6.11.
func AppendFloat(dst []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, fmtFloat), math.Float32bits(v))
}

// AppendDouble appends a double.
//
// Spec: 1.6.12.
func AppendDouble(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, fmtDouble), math.Float64bits(v))
}

// AppendChar appends a char.
//
// Spec: 1.6.16.
func AppendChar(dst []byte, v Char) []byte {
	return binary.BigEndian.AppendUint32(append(dst, fmtChar), uint32(v))
}

// AppendTimestamp appends a timestamp; what is below a millisecond is cut off.
//
// Spec: 1.6.17.
func AppendTimestamp(dst []byte, v time.Time) []byte {
	return binary.BigEndian.AppendUint64(append(dst, fmtTimestamp), uint64(v.UnixMilli()))
}

// AppendUUID appends a uuid.
//
// Spec: 1.6.18.
func AppendUUID(dst []byte, v UUID) []byte {
	return append(append(dst, fmtUUID), v[:]...)
}

// AppendBinary appends a binary; nil is an empty one.
//
// Spec: 1.6.19.
func AppendBinary(dst, v []byte) []byte {
	return append(appendVariable(dst, fmtBin8, len(v)), v...)
}

// AppendString appends a string. It must be UTF-8.
//
// Spec: 1.6.20.
func AppendString(dst []byte, v string) []byte {
	return append(appendVariable(dst, fmtStr8, len(v)), v...)
}

// AppendSymbol appends a symbol. It must be ASCII.
//
// Spec: 1.6.21.
func AppendSymbol(dst []byte, v Symbol) []byte {
	return append(appendVariable(dst, fmtSym8, len(v)), v...)
}

// appendVariable appends the constructor and length of a variable-width value of
// n octets; c is the one-octet form of its format code.
func appendVariable(dst []byte, c byte, n int) []byte {
	if n <= math.MaxUint8 {
		return append(dst, c, byte(n))
	}
	return append(dst, c|wideBit, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendSymbols appends an array of symbols.
//
// Spec: 1.6.24; "multiple" fields: 1.5.
func AppendSymbols(dst []byte, v []Symbol) []byte {
	start := len(dst)
	dst = append(dst, fmtArray8, 0, 0)
	code := byte(fmtSym8)
	for _, s := range v {
		if len(s) > math.MaxUint8 {
			code = fmtSym32
		}
	}
	dst = append(dst, code)
	for _, s := range v {
		if code == fmtSym8 {
			dst = append(dst, byte(len(s)))
		} else {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
		}
		dst = append(dst, s...)
	}
	return closeCompound(dst, start, len(v))
}

// closeCompound fills in the head of the list, map or array whose constructor
// stands at start, followed by two octets kept for size and count. It moves the
// items where they need the wide form.
func closeCompound(dst []byte, start, count int) []byte {
	size := len(dst) - start - 2
	if size <= math.MaxUint8 && count <= math.MaxUint8 {
		dst[start+1], dst[start+2] = byte(size), byte(count)
		return dst
	}
	end := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	copy(dst[start+9:], dst[start+3:end])
	dst[start] |= wideBit
	binary.BigEndian.PutUint32(dst[start+1:], uint32(size+3))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(count))
	return dst
}
