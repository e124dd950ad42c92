package amqpflow

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// PublishOptions completes a message. The zero value of a field means its
// default.
type PublishOptions struct {
	// MessageID and CorrelationID are a string, a uint64, an amqp.UUID or a
	// []byte. An empty string is none.
	//
	// Default: a random UUID for MessageID, none for CorrelationID.
	MessageID, CorrelationID any
	// Subject, ContentType and GroupID are left out where empty.
	//
	// Default of ContentType: by the value, see Publish.
	Subject, ContentType, GroupID string
	// ReplyTo is where a reply is to go.
	ReplyTo Address
	// Headers are the application properties: values of AMQP's simple types.
	Headers map[string]any
	// Annotations are the message annotations. Keys begin with "x-".
	Annotations amqp.Annotations
	// TTL is how long the message is of use, in whole milliseconds.
	//
	// Default: for ever.
	TTL time.Duration
	// Priority is from 0 to 9.
	//
	// Default: 4.
	Priority *uint8
	// NonDurable lets the peer lose the message when it restarts.
	NonDurable bool
}

const defaultPriority = 4

func (o *PublishOptions) check() error {
	wrong := func(field string, err error) error { return &OptionError{Field: "PublishOptions." + field, Err: err} }
	switch {
	case !validID(o.MessageID):
		return wrong("MessageID", fmt.Errorf("%T is no string, uint64, amqp.UUID or []byte", o.MessageID))
	case !validID(o.CorrelationID):
		return wrong("CorrelationID", fmt.Errorf("%T is no string, uint64, amqp.UUID or []byte", o.CorrelationID))
	case !utf8.ValidString(o.Subject):
		return wrong("Subject", errUTF8)
	case !isASCII(o.ContentType):
		return wrong("ContentType", errors.New("is not ASCII"))
	case !utf8.ValidString(o.GroupID):
		return wrong("GroupID", errUTF8)
	case o.TTL < 0 || o.TTL > math.MaxUint32*time.Millisecond || 0 < o.TTL && o.TTL < time.Millisecond:
		return wrong("TTL", fmt.Errorf("%v is not from 1ms to %v", o.TTL, math.MaxUint32*time.Millisecond))
	case o.Priority != nil && *o.Priority > 9:
		return wrong("Priority", fmt.Errorf("%d is over 9", *o.Priority))
	}
	return nil
}

var errUTF8 = errors.New("is not UTF-8")

func validID(id any) bool {
	switch id := id.(type) {
	case string:
		return utf8.ValidString(id)
	case nil, uint64, amqp.UUID, []byte:
		return true
	default:
		return false
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// encode appends the message for v to dst. The error says what could not be
// encoded; nothing was sent then.
func (p *Publisher) encode(dst []byte, addr Address, v any, o *PublishOptions, d address.Dialect) ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	replyTo, err := replyNode(o.ReplyTo, d)
	if err != nil {
		return nil, &OptionError{Field: "PublishOptions.ReplyTo", Err: err}
	}
	if m, ok := v.(*amqp.Message); ok {
		return encodeAMQP(dst, addr, m, o, replyTo)
	}
	contentType, codec := p.c.contentTypeOf(v, o.ContentType)
	failed := func(err error) ([]byte, error) {
		return nil, &EncodeError{Address: addr, ContentType: contentType, Err: err}
	}
	if codec == nil && contentType == "" {
		return failed(p.c.codecs.none(o.ContentType))
	}
	dst, err = appendSections(dst, o, contentType, replyTo)
	if err != nil {
		return failed(err)
	}
	if dst, err = appendBody(dst, v, codec); err != nil {
		return failed(err)
	}
	return dst, nil
}

func replyNode(addr Address, d address.Dialect) (string, error) {
	if addr == "" {
		return "", nil
	}
	parsed, err := addr.parse()
	if err != nil {
		return "", err
	}
	node, err := parsed.Target(d)
	return node.Address, err
}

// contentTypeOf chooses the content type of a value, and its codec unless its
// bytes go out as they are. No content type means that there is no codec.
func (c *core) contentTypeOf(v any, wanted string) (string, Codec) {
	natural := ""
	switch v.(type) {
	case []byte:
		natural = contentTypeBinary
	case string:
		natural = contentTypeText
	case json.RawMessage:
		natural = contentTypeJSON
	}
	switch {
	case natural != "" && wanted != "":
		return wanted, nil
	case natural != "":
		return natural, nil
	case wanted == "":
		return c.codecs[0].ContentType(), c.codecs[0]
	}
	codec := c.codecs.find([]byte(wanted))
	if codec == nil {
		return "", nil
	}
	return wanted, codec
}

// appendSections appends everything that stands before the body.
//
// Spec: 3.2.1 (header), 3.2.3 to 3.2.5.
func appendSections(dst []byte, o *PublishOptions, contentType, replyTo string) ([]byte, error) {
	header := wire.Header{Durable: !o.NonDurable, Priority: defaultPriority}
	if o.Priority != nil {
		header.Priority = *o.Priority
	}
	if o.TTL > 0 {
		header.TTL, header.HasTTL = uint32(o.TTL.Milliseconds()), true
	}
	dst = header.Append(dst)
	annotations, err := annotationMap(o.Annotations)
	if err != nil {
		return nil, err
	}
	if annotations != nil {
		if dst, err = wire.AppendSection(dst, wire.CodeMessageAnnotations, annotations); err != nil {
			return nil, err
		}
	}
	properties := wire.Properties{
		MessageID: fromGo(o.MessageID), CorrelationID: fromGo(o.CorrelationID),
		Subject: o.Subject, ContentType: contentType, GroupID: o.GroupID, ReplyTo: replyTo,
	}
	if properties.MessageID == nil || properties.MessageID == "" {
		properties.MessageID = newUUID()
	}
	if properties.CorrelationID == "" {
		properties.CorrelationID = nil
	}
	dst = properties.Append(dst)
	return appendHeaders(dst, o.Headers)
}

func appendHeaders(dst []byte, headers map[string]any) ([]byte, error) {
	if len(headers) == 0 {
		return dst, nil
	}
	out := make(wire.Map, 0, len(headers))
	for name, value := range headers {
		v, err := encodable(name, value)
		if err != nil {
			return nil, fmt.Errorf("header %w", err)
		}
		switch v.(type) {
		case wire.List, wire.Map, wire.Array, []string:
			return nil, fmt.Errorf("header %q: %T is not of a simple type", name, value)
		}
		out = append(out, wire.Entry{Key: name, Value: v})
	}
	return wire.AppendSection(dst, wire.CodeApplicationProperties, out)
}

// appendBody appends v as one data section, without a copy of what the codec
// wrote.
//
// Spec: 3.2.6.
func appendBody(dst []byte, v any, codec Codec) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return wire.AppendData(dst, v), nil
	case json.RawMessage:
		return wire.AppendData(dst, v), nil
	case string:
		dst = wire.AppendDataHeader(dst, len(v))
		return append(dst, v...), nil
	}
	dst = wire.AppendDataHeader(dst, math.MaxUint8+1) // the four-byte form, whose length is known later
	start := len(dst)
	dst, err := codec.Append(dst, v)
	if err != nil {
		return nil, err
	}
	if len(dst) < start || uint64(len(dst)-start) > math.MaxUint32 {
		return nil, errors.New("the codec returned a body of a wrong length")
	}
	binary.BigEndian.PutUint32(dst[start-4:], uint32(len(dst)-start))
	return dst, nil
}

func newUUID() wire.UUID {
	var id wire.UUID
	_, _ = rand.Read(id[:]) // it never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
