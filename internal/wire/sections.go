package wire

import (
	"encoding/binary"
	"slices"
)

// BodyKind tells what sections a message's body consists of.
type BodyKind uint8

// The kinds of body.
const (
	BodyNone BodyKind = iota
	BodyData
	BodySequence
	BodyValue
)

// Sections are the sections of an encoded message. Byte slices alias the payload.
//
// Spec: 3.2.
type Sections struct {
	HasHeader bool
	Header    Header // with the standard's defaults if there is none

	// The encoded value of each of these, without its descriptor; nil if absent.
	DeliveryAnnotations   []byte
	MessageAnnotations    []byte
	Properties            []byte
	ApplicationProperties []byte
	Footer                []byte

	Body          BodyKind
	Data          []byte // octets of the first data section, not nil if there is one
	DataCount     int    // data sections
	DataSize      int    // octets in all of them
	SequenceCount int    // amqp-sequence sections
	Value         []byte // the encoded value of the amqp-value section

	body []byte // all body sections, descriptors included
}

// Parse finds the sections of payload and checks everything in them, so that the
// decoders of this package cannot fail on what it found. It allocates nothing
// unless it fails.
//
// It returns an error if a section is unknown, stands out of order or twice (only
// data and sequence sections may), if body sections are of different kinds, if
// properties are more than 13 or of a wrong type, if a key of
// application-properties is no string, or if a key of annotations is none of
// symbol, ulong, string and long. The last two are not the standard's, but
// brokers do send them. A section that is null counts as empty. No section at all
// is no error.
//
// Spec: 3.2.
func (s *Sections) Parse(payload []byte) error {
	*s = Sections{Header: Header{Priority: DefaultPriority}}
	sc := newScanner()
	last := uint64(0)
	for rest := payload; len(rest) > 0; {
		code, n, err := sectionDescriptor(rest)
		if err != nil {
			return err
		}
		if err := s.follows(code, last); err != nil {
			return err
		}
		last = code
		value := rest[n:]
		m, err := s.section(&sc, code, value)
		if err != nil {
			return within(err, "section 0x%02x", code)
		}
		if code >= CodeData && code <= CodeAMQPValue {
			s.body = grow(s.body, rest[:n+m])
		}
		rest = value[m:]
	}
	return nil
}

// grow extends a to take in next, which stands behind it in the same payload.
func grow(a, next []byte) []byte {
	if a == nil {
		return next
	}
	return a[:len(a)+len(next)]
}

func sectionDescriptor(b []byte) (code uint64, n int, err error) {
	if len(b) >= 3 && b[0] == fmtDescribed && b[1] == fmtSmallUlong {
		code, n = uint64(b[2]), 3
	} else if code, n, err = descriptor(b); err != nil {
		return 0, 0, within(err, "section descriptor")
	}
	if code < CodeHeader || code > CodeFooter {
		return 0, 0, malformed("descriptor 0x%02x is no message section", code)
	}
	return code, n, nil
}

// follows checks that a section may follow the last one. The standard numbers
// them in the order in which they stand.
func (s *Sections) follows(code, last uint64) error {
	switch {
	case code > last && (code > CodeAMQPValue || last < CodeData):
		return nil
	case code == last && (code == CodeData || code == CodeAMQPSequence):
		return nil
	}
	return malformed("section 0x%02x behind section 0x%02x", code, last)
}

// section takes in one section and returns the length of its value.
func (s *Sections) section(sc *scanner, code uint64, b []byte) (int, error) {
	switch code {
	case CodeData:
		return s.data(b)
	case CodeHeader:
		return s.header(b)
	case CodeProperties:
		n, err := sc.properties(b)
		return n, keep(&s.Properties, b, n, err)
	case CodeApplicationProperties:
		n, err := sc.keyedMap(b, isString)
		return n, keep(&s.ApplicationProperties, b, n, err)
	case CodeDeliveryAnnotations:
		n, err := sc.keyedMap(b, isAnnotationKey)
		return n, keep(&s.DeliveryAnnotations, b, n, err)
	case CodeMessageAnnotations:
		n, err := sc.keyedMap(b, isAnnotationKey)
		return n, keep(&s.MessageAnnotations, b, n, err)
	case CodeFooter:
		n, err := sc.keyedMap(b, isAnnotationKey)
		return n, keep(&s.Footer, b, n, err)
	case CodeAMQPSequence:
		s.Body = BodySequence
		s.SequenceCount++
		return sc.sequence(b)
	}
	n, err := sc.value(b, 0)
	s.Body, s.Value = BodyValue, b[:n:n]
	return n, err
}

// keep stores a section's value. Null is kept as absence.
func keep(dst *[]byte, b []byte, n int, err error) error {
	if err == nil && b[0] != fmtNull {
		*dst = b[:n:n]
	}
	return err
}

func isAnnotationKey(c byte) bool {
	return isSymbol(c) || isUlong(c) || isString(c) || isLong(c)
}

// data takes in a data section.
//
// Spec: 3.2.6.
func (s *Sections) data(b []byte) (int, error) {
	octets, n, err := dataOctets(b)
	if err != nil {
		return 0, err
	}
	s.Body = BodyData
	if s.DataCount == 0 {
		s.Data = octets
	}
	s.DataCount++
	s.DataSize += len(octets)
	return n, nil
}

// dataOctets returns the octets of an encoded binary, and its length. Null has none.
func dataOctets(b []byte) (octets []byte, n int, err error) {
	if len(b) == 0 {
		return nil, 0, errShort()
	}
	switch c := b[0]; {
	case c == fmtBin32 && len(b) >= 5:
		size := binary.BigEndian.Uint32(b[1:])
		if uint64(len(b)-5) < uint64(size) {
			return nil, 0, errShort()
		}
		n = 5 + int(size)
		return b[5:n:n], n, nil
	case isBinary(c):
		octets, n, err = variable(c, b[1:])
		return slices.Clip(octets), n + 1, err
	case c == fmtNull:
		return b[1:1:1], 1, nil
	}
	return nil, 0, malformed("format code 0x%02x is no binary", b[0])
}

// header takes in a header section.
func (s *Sections) header(b []byte) (int, error) {
	s.HasHeader = true
	if len(b) > 0 && b[0] == fmtNull {
		return 1, nil
	}
	var f fields
	rest, err := f.openList("header", b)
	if err != nil {
		return 0, err
	}
	s.Header.fields(&f)
	return len(b) - len(rest), f.end()
}

// sequence checks the list of an amqp-sequence section.
//
// Spec: 3.2.7.
func (s *scanner) sequence(b []byte) (int, error) {
	if len(b) > 0 && b[0] != fmtList0 && shapes[b[0]] != shapeList {
		return 0, malformed("format code 0x%02x is no list", b[0])
	}
	return s.value(b, 0)
}

// keyedMap checks a map whose keys' format codes must pass isKey.
func (s *scanner) keyedMap(b []byte, isKey func(byte) bool) (int, error) {
	if len(b) == 0 {
		return 0, errShort()
	}
	c := b[0]
	if c == fmtNull {
		return 1, nil
	}
	if shapes[c] != shapeMap {
		return 0, malformed("format code 0x%02x is no map", c)
	}
	count, items, n, err := head(c, b[1:])
	if err != nil {
		return 0, err
	}
	if count%2 != 0 || uint64(count) > uint64(len(items)) {
		return 0, malformed("map of %d items in %d octets", count, len(items))
	}
	for i := range count {
		if i%2 == 0 && len(items) > 0 && !isKey(items[0]) {
			return 0, malformed("key of format code 0x%02x", items[0])
		}
		m, err := s.value(items, 1)
		if err != nil {
			return 0, err
		}
		items = items[m:]
	}
	if len(items) != 0 {
		return 0, malformed("%d octets behind the last item", len(items))
	}
	return n + 1, nil
}

// RawBody returns the body sections as they stand in the payload, which it
// aliases; nil if there is none.
func (s *Sections) RawBody() []byte { return s.body }

// AppendBody appends the octets of all data sections. It appends nothing for any
// other body.
func (s *Sections) AppendBody(dst []byte) []byte {
	if s.DataCount <= 1 {
		return append(dst, s.Data...)
	}
	for rest := s.body; len(rest) > 0; {
		_, n, err := descriptor(rest)
		if err != nil {
			return dst
		}
		octets, m, err := dataOctets(rest[n:])
		if err != nil {
			return dst
		}
		dst = append(dst, octets...)
		rest = rest[n+m:]
	}
	return dst
}

// Sequences decodes the amqp-sequence sections, one list for each.
func (s *Sections) Sequences() ([]List, error) {
	if s.Body != BodySequence {
		return nil, nil
	}
	out := make([]List, 0, s.SequenceCount)
	for rest := s.body; len(rest) > 0; {
		_, n, err := descriptor(rest)
		if err != nil {
			return nil, err
		}
		v, after, err := DecodeValue(rest[n:])
		if err != nil {
			return nil, err
		}
		l, _ := v.(List)
		out, rest = append(out, l), after
	}
	return out, nil
}
