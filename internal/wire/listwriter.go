package wire

// listWriter appends the list of a composite type. Absent fields are held back
// and written as null only before one that is there, so trailing ones cost nothing.
type listWriter struct {
	dst    []byte
	start  int
	count  int
	absent int
}

// beginList appends the descriptor and opens the list. Code must be below 256.
func beginList(dst []byte, code uint64) listWriter {
	start := len(dst) + 3
	return listWriter{
		dst:   append(dst, fmtDescribed, fmtSmallUlong, byte(code), fmtList8, 0, 0),
		start: start,
	}
}

// skip leaves one field out.
func (w *listWriter) skip() { w.absent++ }

// field makes room for one that is there.
func (w *listWriter) field() {
	for ; w.absent > 0; w.absent-- {
		w.dst = append(w.dst, fmtNull)
		w.count++
	}
	w.count++
}

func (w *listWriter) end() []byte {
	if w.count == 0 {
		w.dst[w.start] = fmtList0
		return w.dst[:w.start+1]
	}
	return closeCompound(w.dst, w.start, w.count)
}

func (w *listWriter) uint32(v uint32) {
	w.field()
	w.dst = AppendUint(w.dst, v)
}

// uint32Unless leaves the field out if v is what absence means.
func (w *listWriter) uint32Unless(v, absent uint32) {
	if v == absent {
		w.skip()
		return
	}
	w.uint32(v)
}

func (w *listWriter) optUint32(v OptUint32) {
	if !v.Set {
		w.skip()
		return
	}
	w.uint32(v.Value)
}

func (w *listWriter) uint64(v uint64) {
	w.field()
	w.dst = AppendUlong(w.dst, v)
}

func (w *listWriter) uint16(v uint16) {
	w.field()
	w.dst = AppendUshort(w.dst, v)
}

func (w *listWriter) uint8(v uint8) {
	w.field()
	w.dst = AppendUbyte(w.dst, v)
}

func (w *listWriter) uint8Unless(v, absent uint8) {
	if v == absent {
		w.skip()
		return
	}
	w.uint8(v)
}

func (w *listWriter) bool(v bool) {
	w.field()
	w.dst = AppendBool(w.dst, v)
}

// ifTrue leaves the field out if v is false.
func (w *listWriter) ifTrue(v bool) {
	if !v {
		w.skip()
		return
	}
	w.bool(true)
}

func (w *listWriter) string(v string) {
	w.field()
	w.dst = AppendString(w.dst, v)
}

// ifString leaves the field out if v is empty.
func (w *listWriter) ifString(v string) {
	if v == "" {
		w.skip()
		return
	}
	w.string(v)
}

func (w *listWriter) symbol(v Symbol) {
	w.field()
	w.dst = AppendSymbol(w.dst, v)
}

// ifSymbol leaves the field out if v is empty.
func (w *listWriter) ifSymbol(v Symbol) {
	if v == "" {
		w.skip()
		return
	}
	w.symbol(v)
}

func (w *listWriter) binary(v []byte) {
	w.field()
	w.dst = AppendBinary(w.dst, v)
}

// ifBinary leaves the field out if v is nil.
func (w *listWriter) ifBinary(v []byte) {
	if v == nil {
		w.skip()
		return
	}
	w.binary(v)
}

// ifSymbols leaves the field out if there are none.
func (w *listWriter) ifSymbols(v []Symbol) {
	if len(v) == 0 {
		w.skip()
		return
	}
	w.field()
	w.dst = AppendSymbols(w.dst, v)
}

// ifMap leaves the field out if m is nil or holds what cannot be encoded.
func (w *listWriter) ifMap(m Map) {
	if m == nil {
		w.skip()
		return
	}
	b, err := appendMap(nil, m, 0)
	if err != nil {
		w.skip()
		return
	}
	w.field()
	w.dst = append(w.dst, b...)
}

// ifState leaves the field out if s is nil or says nothing.
func (w *listWriter) ifState(s *State) {
	if s == nil || s.Kind == StateNone || s.Kind == StateUnknown {
		w.skip()
		return
	}
	w.field()
	w.dst = AppendState(w.dst, s)
}

func (w *listWriter) ifError(e *Error) {
	if e == nil {
		w.skip()
		return
	}
	w.field()
	w.dst = e.append(w.dst)
}
