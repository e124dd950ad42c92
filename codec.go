package amqpflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Codec turns Go values into the bytes of a body and back. Its methods are
// called from several goroutines at once.
//
// T of []byte, string and json.RawMessage never reach a codec: they take and
// give the bytes as they are.
type Codec interface {
	// ContentType is the media type that Append writes and Decode reads, in
	// lower case and without parameters.
	ContentType() string
	// Append encodes v behind dst.
	Append(dst []byte, v any) ([]byte, error)
	// Decode decodes data into v, a pointer. It must not keep data.
	Decode(data []byte, v any) error
}

// JSON is the codec of encoding/json, content type application/json.
func JSON() Codec { return jsonCodec{} }

const (
	contentTypeJSON   = "application/json"
	contentTypeBinary = "application/octet-stream"
	contentTypeText   = "text/plain"
)

type jsonCodec struct{}

func (jsonCodec) ContentType() string { return contentTypeJSON }

func (jsonCodec) Append(dst []byte, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return dst, err
	}
	return append(dst, data...), nil
}

func (jsonCodec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

var (
	errNoCodec     = errors.New("no codec")
	errEmptyBody   = errors.New("the body is empty")
	errNilCodec    = errors.New("is nil")
	errContentType = errors.New("content type stands twice or is empty")
)

// codecs chooses a codec by content type; the first is the default.
type codecs []Codec

func (cs codecs) check() error {
	seen := make(map[string]bool, len(cs))
	for _, c := range cs {
		if c == nil {
			return errNilCodec
		}
		name := mediaType(c.ContentType())
		if name == "" || seen[name] {
			return errContentType
		}
		seen[name] = true
	}
	return nil
}

// find returns the codec for a content type as it stands in a message, nil if
// there is none. Absent, octet-stream and text mean the default.
func (cs codecs) find(contentType []byte) Codec {
	for _, c := range cs {
		if c.ContentType() == string(contentType) {
			return c
		}
	}
	name := mediaType(string(contentType))
	if name == "" || name == contentTypeBinary || name == contentTypeText {
		return cs[0]
	}
	for _, c := range cs {
		if mediaType(c.ContentType()) == name {
			return c
		}
	}
	if strings.HasSuffix(name, "+json") {
		return cs.find([]byte(contentTypeJSON))
	}
	return nil
}

// none says that no codec is for a content type, and which ones there are.
func (cs codecs) none(contentType string) error {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.ContentType()
	}
	return fmt.Errorf("%w for %q: there are %s", errNoCodec, contentType, strings.Join(names, ", "))
}

// mediaType is a content type in lower case without its parameters.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// decodeBody decodes a delivery's bytes into *body. T decides whether a codec is
// asked. The error is a *DecodeError.
func decodeBody[T any](cs codecs, d *Delivery, body *T) error {
	switch p := any(body).(type) {
	case *[]byte:
		*p = d.data
		return nil
	case *string:
		*p = string(d.data)
		return nil
	case *json.RawMessage:
		*p = json.RawMessage(d.data)
		return nil
	}
	var err error
	switch c := cs.find(d.contentType()); {
	case c == nil:
		err = cs.none(d.ContentType())
	case len(d.data) == 0:
		err = emptyBody[T]()
	default:
		err = c.Decode(d.data, body)
	}
	if err == nil {
		return nil
	}
	return &DecodeError{Address: d.Address(), ContentType: d.ContentType(), Err: err}
}

// emptyBody lets an empty body be the nil of a type that has one.
func emptyBody[T any]() error {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		return nil
	default:
		return errEmptyBody
	}
}
