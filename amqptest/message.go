package amqptest

import (
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// message is a stored message: its header section decoded, because each
// delivery writes it anew, and all that follows as it came.
type message struct {
	seq       uint64 // its place in its queue
	format    uint32
	header    wire.Header
	rest      []byte  // every section after the header; all bytes if format is not 0
	messageID []byte  // the encoded value, aliasing rest; nil if absent
	duplicate bool    // made by a fault
	acquired  bool    // some consumer has been given it
	refusedBy []*link // said undeliverable-here
	expires   int64   // in Unix nanoseconds; 0: never
	due       int64   // is not delivered before, in Unix nanoseconds; 0: at once
}

// newMessage checks payload, which it keeps. What a format other than 0 means
// is between the two clients. Spec: 2.8.11.
func newMessage(sections *wire.Sections, format uint32, payload []byte, d *dialect) (*message, error) {
	if !d.formats {
		format = 0
	}
	m := &message{format: format, header: wire.Header{Priority: 4}, rest: payload}
	if format != 0 {
		return m, nil
	}
	if err := sections.Parse(payload); err != nil {
		return nil, err
	}
	if sections.HasHeader {
		m.header = sections.Header
		rest, err := wire.SkipValue(payload)
		if err != nil {
			return nil, err
		}
		m.rest = rest
	}
	if sections.Properties != nil {
		if id, ok := wire.LookupProperty(sections.Properties, wire.PropMessageID); ok {
			m.messageID = id
		}
	}
	m.schedule(sections, d)
	return m, nil
}

// bytes is the message as the next consumer would see it.
func (m *message) bytes() []byte {
	if m.format != 0 {
		return m.rest
	}
	h := m.header
	h.FirstAcquirer = !m.acquired
	return append(h.Append(nil), m.rest...)
}

// decode returns the message as go-amqp has it, or all its bytes as one data
// section if go-amqp cannot hold it.
func (m *message) decode() *amqp.Message {
	raw := m.bytes()
	var a amqp.Message
	if m.format == 0 && a.UnmarshalBinary(raw) == nil {
		return &a
	}
	return &amqp.Message{Format: m.format, Data: [][]byte{slices.Clone(raw)}}
}

// id is the message-id as text, "" if there is none.
func (m *message) id() string {
	if m.messageID == nil {
		return ""
	}
	v, _, err := wire.DecodeValue(m.messageID)
	if err != nil {
		return ""
	}
	switch id := v.(type) {
	case string:
		return id
	case uint64:
		return strconv.FormatUint(id, 10)
	case wire.UUID:
		return amqp.UUID(id).String()
	case []byte:
		return hex.EncodeToString(id)
	default:
		return ""
	}
}

// dropDeliveryAnnotations takes them off, as they are for the next hop alone.
// Spec: 3.2.2.
func (m *message) dropDeliveryAnnotations() {
	code, _, err := wire.PeekDescriptor(m.rest)
	if err != nil || code != wire.CodeDeliveryAnnotations {
		return
	}
	if rest, err := wire.SkipValue(m.rest); err == nil {
		m.rest = rest
	}
}

// annotate merges annotations into the message's own. Spec: 3.4.5.
func (m *message) annotate(annotations wire.Map) {
	if len(annotations) == 0 || m.format != 0 {
		return
	}
	before, own, behind, err := m.split()
	if err != nil {
		return // cannot be: newMessage has parsed it
	}
	for _, e := range annotations {
		if i := slices.IndexFunc(own, func(o wire.Entry) bool { return o.Key == e.Key }); i >= 0 {
			own[i].Value = e.Value
		} else {
			own = append(own, e)
		}
	}
	section, err := wire.AppendSection(nil, wire.CodeMessageAnnotations, own)
	if err != nil {
		return // cannot be: every value was decoded by wire
	}
	m.messageID = slices.Clone(m.messageID) // lets go of the old bytes
	m.rest = slices.Concat(before, section, behind)
}

// split returns the bytes before and behind the message-annotations, and them.
func (m *message) split() (before []byte, own wire.Map, behind []byte, err error) {
	behind = m.rest
	for len(behind) > 0 {
		code, value, err := wire.PeekDescriptor(behind)
		if err != nil {
			return nil, nil, nil, err
		}
		if code > wire.CodeMessageAnnotations {
			break
		}
		next, err := wire.SkipValue(behind)
		if err != nil {
			return nil, nil, nil, err
		}
		before := m.rest[:len(m.rest)-len(behind)]
		behind = next
		if code == wire.CodeMessageAnnotations {
			own, err := wire.DecodeMap(value[:len(value)-len(next)])
			return before, own, next, err
		}
	}
	return m.rest[:len(m.rest)-len(behind)], nil, behind, nil
}
