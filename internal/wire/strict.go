package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// Check is SkipValue for a reader that forgives nothing: strings must be UTF-8,
// symbols ASCII, chars code points of Unicode, and no map may have a key twice.
// The decoders of this package let these pass, because nothing that they do
// relies on it. It allocates only if it fails, or for a map of more than 32
// entries.
//
// Spec: 1.6.16, 1.6.20, 1.6.21, 1.6.23.
func Check(b []byte) (rest []byte, err error) {
	s := newScanner()
	s.strict = true
	n, err := s.value(b, 0)
	if err != nil {
		return nil, err
	}
	return b[n:], nil
}

// checkText checks the octets of a variable-width value of format code c.
func checkText(c byte, v []byte) error {
	switch {
	case isString(c):
		if !utf8.Valid(v) {
			return malformed("string %q is not UTF-8", head64(v))
		}
	case isSymbol(c):
		for _, o := range v {
			if o >= utf8.RuneSelf {
				return malformed("symbol %q is not ASCII", head64(v))
			}
		}
	}
	return nil
}

// head64 keeps an error text short.
func head64(v []byte) []byte { return v[:min(len(v), 64)] }

// codePoints checks chars that stand side by side.
func codePoints(b []byte) error {
	for ; len(b) >= 4; b = b[4:] {
		if c := binary.BigEndian.Uint32(b); c > utf8.MaxRune || !utf8.ValidRune(rune(c)) {
			return malformed("char 0x%08x is no code point", c)
		}
	}
	return nil
}

// distinctKeys checks the keys of a map of n entries, which has been walked.
func distinctKeys(n uint32, items []byte) error {
	if n < 2 {
		return nil
	}
	if n > 32 {
		return distinctMany(n, items)
	}
	var keys [32][]byte
	for i := range n {
		key, rest := nextKey(items)
		for _, k := range keys[:i] {
			if equalKeys(k, key) {
				return duplicateKey(key)
			}
		}
		keys[i], items = key, rest
	}
	return nil
}

func distinctMany(n uint32, items []byte) error {
	seen := make(map[string]struct{}, n)
	for range n {
		key, rest := nextKey(items)
		class, content := keyOf(key)
		id := string(append([]byte{class}, content...))
		if _, twice := seen[id]; twice {
			return duplicateKey(key)
		}
		seen[id], items = struct{}{}, rest
	}
	return nil
}

func duplicateKey(key []byte) error {
	_, content := keyOf(key)
	return malformed("key %q stands twice in a map", head64(content))
}

// nextKey returns the encoded key of the first entry, and what follows the entry.
func nextKey(items []byte) (key, rest []byte) {
	s := newScanner()
	n, err := s.value(items, 0)
	if err != nil {
		return nil, nil // cannot be: the map has been walked
	}
	m, err := s.value(items[n:], 0)
	if err != nil {
		return nil, nil
	}
	return items[:n], items[n+m:]
}

func equalKeys(a, b []byte) bool {
	ca, va := keyOf(a)
	cb, vb := keyOf(b)
	return ca == cb && string(va) == string(vb)
}

// keyOf splits a key so that two encodings of the same text are the same.
func keyOf(key []byte) (class byte, content []byte) {
	if len(key) == 0 {
		return 0, nil
	}
	c := key[0]
	if shapes[c] == shapeVar8 || shapes[c] == shapeVar32 {
		v, _, _ := variable(c, key[1:])
		return c &^ wideBit, v
	}
	return c, key[1:]
}
