package wire

import (
	"time"
)

// Fields of the properties section, for [LookupProperty].
const (
	PropMessageID = iota
	PropUserID
	PropTo
	PropSubject
	PropReplyTo
	PropCorrelationID
	PropContentType
	PropContentEncoding
	PropAbsoluteExpiryTime
	PropCreationTime
	PropGroupID
	PropGroupSequence
	PropReplyToGroupID
	propCount
)

// Properties are the immutable properties of a bare message. A zero field is absent.
//
// Spec: 3.2.4.
type Properties struct {
	MessageID          any // uint64, UUID, []byte or string; nil if absent
	UserID             []byte
	To                 string
	Subject            string
	ReplyTo            string
	CorrelationID      any // as MessageID
	ContentType        string
	ContentEncoding    string
	AbsoluteExpiryTime time.Time
	CreationTime       time.Time
	GroupID            string
	GroupSequence      OptUint32
	ReplyToGroupID     string
}

// Decode overwrites p with encoded properties without their descriptor, which
// must be all of b. Null and zero octets are empty properties. Texts may be
// strings or symbols, whichever the standard has. It cannot fail on what
// [Sections.Parse] found.
func (p *Properties) Decode(b []byte) error {
	*p = Properties{}
	if len(b) == 0 || len(b) == 1 && b[0] == fmtNull {
		return nil
	}
	var f fields
	rest, err := f.openList("properties", b)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return malformed("properties: %d octets behind them", len(rest))
	}
	p.MessageID = f.messageID()
	p.UserID, _ = f.binaryCopy()
	p.To = f.text()
	p.Subject = f.text()
	p.ReplyTo = f.text()
	p.CorrelationID = f.messageID()
	p.ContentType = f.text()
	p.ContentEncoding = f.text()
	p.AbsoluteExpiryTime = f.time()
	p.CreationTime = f.time()
	p.GroupID = f.text()
	p.GroupSequence = f.optUint32()
	p.ReplyToGroupID = f.text()
	return f.end()
}

// Append appends the whole section. An id of a type that properties cannot hold
// ([IsMessageID]) is left off.
func (p *Properties) Append(dst []byte) []byte {
	w := beginList(dst, CodeProperties)
	w.messageID(p.MessageID)
	w.ifBinary(p.UserID)
	w.ifString(p.To)
	w.ifString(p.Subject)
	w.ifString(p.ReplyTo)
	w.messageID(p.CorrelationID)
	w.ifSymbol(Symbol(p.ContentType))
	w.ifSymbol(Symbol(p.ContentEncoding))
	w.ifTime(p.AbsoluteExpiryTime)
	w.ifTime(p.CreationTime)
	w.ifString(p.GroupID)
	w.optUint32(p.GroupSequence)
	w.ifString(p.ReplyToGroupID)
	return w.end()
}

// IsMessageID reports whether v can be a message-id or correlation-id: a uint64,
// [UUID], []byte, string, or nil for none.
//
// Spec: 3.2.11 to 3.2.14.
func IsMessageID(v any) bool {
	switch v.(type) {
	case nil, uint64, UUID, []byte, string:
		return true
	}
	return false
}

func (w *listWriter) messageID(v any) {
	if v == nil || !IsMessageID(v) {
		w.skip()
		return
	}
	w.field()
	w.dst, _ = appendScalar(w.dst, v)
}

func (w *listWriter) ifTime(t time.Time) {
	if t.IsZero() {
		w.skip()
		return
	}
	w.field()
	w.dst = AppendTimestamp(w.dst, t)
}

func isMessageID(c byte) bool {
	return isString(c) || isBinary(c) || isUlong(c) || c == fmtUUID
}

func isText(c byte) bool { return isString(c) || isSymbol(c) }

func (f *fields) text() string {
	b, _ := f.raw(isText, "string or symbol")
	return string(b)
}

func (f *fields) messageID() any {
	b := f.value()
	if b == nil {
		return nil
	}
	if !isMessageID(b[0]) {
		f.wrong(b[0], "message id")
		return nil
	}
	v, _ := build(b)
	return v
}

func (f *fields) time() time.Time {
	c, ok := f.next()
	if !ok {
		return time.Time{}
	}
	if c != fmtTimestamp {
		f.wrong(c, "timestamp")
		return time.Time{}
	}
	if b, ok := f.octets(8); ok {
		return timestamp(b)
	}
	return time.Time{}
}

// propertyIs tells which format codes each property may have, null apart.
var propertyIs = [propCount]func(byte) bool{
	PropMessageID:          isMessageID,
	PropUserID:             isBinary,
	PropTo:                 isText,
	PropSubject:            isText,
	PropReplyTo:            isText,
	PropCorrelationID:      isMessageID,
	PropContentType:        isText,
	PropContentEncoding:    isText,
	PropAbsoluteExpiryTime: func(c byte) bool { return c == fmtTimestamp },
	PropCreationTime:       func(c byte) bool { return c == fmtTimestamp },
	PropGroupID:            isText,
	PropGroupSequence:      func(c byte) bool { return c == fmtUint || c == fmtSmallUint || c == fmtUint0 },
	PropReplyToGroupID:     isText,
}

// properties checks a properties list as [Properties.Decode] reads it.
func (s *scanner) properties(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errShort()
	}
	c := b[0]
	if c == fmtNull || c == fmtList0 {
		return 1, nil
	}
	if shapes[c] != shapeList {
		return 0, malformed("format code 0x%02x is no list", c)
	}
	count, items, n, err := head(c, b[1:])
	if err != nil {
		return 0, err
	}
	if count > propCount {
		return 0, malformed("%d properties", count)
	}
	for i := range count {
		if len(items) == 0 {
			return 0, errShort()
		}
		if c := items[0]; c != fmtNull && !propertyIs[i](c) {
			return 0, malformed("property %d of format code 0x%02x", i, c)
		}
		m, err := s.value(items, 1)
		if err != nil {
			return 0, err
		}
		items = items[m:]
	}
	if len(items) != 0 {
		return 0, malformed("%d octets behind the last property", len(items))
	}
	return n + 1, nil
}

// LookupProperty returns one field of encoded properties without their
// descriptor, itself encoded: PropMessageID to PropReplyToGroupID. It reports
// false if the field is absent. The value aliases b; nothing is allocated.
func LookupProperty(b []byte, index int) (value []byte, ok bool) {
	if len(b) == 0 || shapes[b[0]] != shapeList {
		return nil, false
	}
	count, items, _, err := head(b[0], b[1:])
	if err != nil || index < 0 || uint64(index) >= uint64(count) {
		return nil, false
	}
	s := newScanner()
	for range index {
		n, err := s.value(items, 1)
		if err != nil {
			return nil, false
		}
		items = items[n:]
	}
	n, err := s.value(items, 1)
	if err != nil || items[0] == fmtNull {
		return nil, false
	}
	return items[:n:n], true
}

// LookupString returns the value, encoded, of the first entry of an encoded map
// whose key is the string or symbol key. It reports false if there is none. The
// value, which may be null, aliases m; nothing is allocated.
func LookupString(m []byte, key string) (value []byte, ok bool) {
	if len(m) == 0 || shapes[m[0]] != shapeMap {
		return nil, false
	}
	count, items, _, err := head(m[0], m[1:])
	if err != nil {
		return nil, false
	}
	s := newScanner()
	for range count / 2 {
		n, err := s.value(items, 1)
		if err != nil {
			return nil, false
		}
		k := items[:n]
		items = items[n:]
		if n, err = s.value(items, 1); err != nil {
			return nil, false
		}
		if raw, ok := RawBytes(k); ok && isText(k[0]) && string(raw) == key {
			return items[:n:n], true
		}
		items = items[n:]
	}
	return nil, false
}

// RawBytes returns the octets of an encoded string, symbol or binary, which alias
// value. It reports false for anything else.
func RawBytes(value []byte) (b []byte, ok bool) {
	if len(value) == 0 || !isText(value[0]) && !isBinary(value[0]) {
		return nil, false
	}
	b, _, err := variable(value[0], value[1:])
	return b, err == nil
}
