package wire

import "bytes"

// Symbol is a symbolic name from a constrained domain, in ASCII.
//
// Spec: 1.6.21.
type Symbol string

// UUID is a universally unique identifier as RFC 4122 lays it out.
//
// Spec: 1.6.18.
type UUID [16]byte

// Char is one Unicode character.
//
// Spec: 1.6.16.
type Char rune

// Decimal32 holds the octets of an IEEE 754-2008 decimal32, uninterpreted.
//
// Spec: 1.6.13.
type Decimal32 [4]byte

// Decimal64 holds the octets of an IEEE 754-2008 decimal64, uninterpreted.
//
// Spec: 1.6.14.
type Decimal64 [8]byte

// Decimal128 holds the octets of an IEEE 754-2008 decimal128, uninterpreted.
//
// Spec: 1.6.15.
type Decimal128 [16]byte

// Described is a value annotated with a descriptor, usually a Symbol or a uint64.
//
// Spec: 1.3, 1.5.
type Described struct{ Descriptor, Value any }

// List is a sequence of values of any types.
//
// Spec: 1.6.22.
type List []any

// Map is a polymorphic map in wire order. A key may be of any type, which is why
// it is no Go map.
//
// Spec: 1.6.23.
type Map []Entry

// Entry is one key and its value in a [Map].
type Entry struct{ Key, Value any }

// Array is a sequence of values that share one constructor.
//
// Spec: 1.6.24.
type Array struct {
	// Code is the elements' format code. Encoding widens it from the one-octet
	// form (0xa0, 0xc0 ...) to the four-octet form where an element needs it.
	Code byte
	// Descriptor is that of each element, nil if the elements are not described.
	Descriptor any
	Elems      []any
}

// Get returns the value of the first entry whose key equals key, nil if there is
// none. Scalars are compared by type and value, except that a string and a
// [Symbol] of the same text are equal, as are []byte of the same octets. Lists,
// maps, arrays and described values equal nothing.
func (m Map) Get(key any) any {
	for i := range m {
		if sameKey(m[i].Key, key) {
			return m[i].Value
		}
	}
	return nil
}

func sameKey(have, want any) bool {
	switch h := have.(type) {
	case List, Map, Array, Described:
		return false
	case []byte:
		w, ok := want.([]byte)
		return ok && bytes.Equal(h, w)
	}
	if h, ok := text(have); ok {
		w, ok := text(want)
		return ok && h == w
	}
	return have == want
}

func text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case Symbol:
		return string(s), true
	}
	return "", false
}
