package amqpflow

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// toGo turns a value of the wire into the Go type that go-amqp decodes.
func toGo(v any) any {
	switch v := v.(type) {
	case wire.Symbol:
		return string(v)
	case wire.UUID:
		return amqp.UUID(v)
	case wire.Char:
		return rune(v)
	case wire.Decimal32:
		return [4]byte(v)
	case wire.Decimal64:
		return [8]byte(v)
	case wire.Decimal128:
		return [16]byte(v)
	case wire.List:
		return toGoList(v)
	case wire.Array:
		return toGoList(v.Elems)
	case wire.Map:
		return toGoMap(v)
	case wire.Described:
		return toGo(v.Value)
	default:
		return v
	}
}

func toGoList(in []any) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = toGo(v)
	}
	return out
}

// toGoMap gives a map[string]any where every key is a string or a symbol, else
// a map[any]any without the keys that cannot stand in a Go map.
func toGoMap(m wire.Map) any {
	byName := make(map[string]any, len(m))
	for _, e := range m {
		name, ok := toGo(e.Key).(string)
		if !ok {
			return toGoAnyMap(m)
		}
		byName[name] = toGo(e.Value)
	}
	return byName
}

func toGoAnyMap(m wire.Map) map[any]any {
	out := make(map[any]any, len(m))
	for _, e := range m {
		switch key := toGo(e.Key).(type) {
		case []byte, []any, map[string]any, map[any]any:
		default:
			out[key] = toGo(e.Value)
		}
	}
	return out
}

// fromGo turns the types of go-amqp into those of the wire.
func fromGo(v any) any {
	switch v := v.(type) {
	case amqp.UUID:
		return wire.UUID(v)
	case amqp.Symbol:
		return wire.Symbol(v)
	case int:
		return int64(v)
	case uint:
		return uint64(v)
	case []any:
		out := make(wire.List, len(v))
		for i := range v {
			out[i] = fromGo(v[i])
		}
		return out
	case map[string]any:
		out := make(wire.Map, 0, len(v))
		for key, value := range v {
			out = append(out, wire.Entry{Key: key, Value: fromGo(value)})
		}
		return out
	default:
		return v
	}
}

// encodable turns a user's value into one of the wire, or says why it has
// none.
func encodable(name string, v any) (any, error) {
	v = fromGo(v)
	if _, err := wire.AppendValue(nil, v); err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	if !isText(name) || !isText(v) {
		return nil, fmt.Errorf("%q: %w", name, errUTF8)
	}
	return v, nil
}

// isText says whether every string in v is UTF-8, which AMQP's strings are and
// Go's need not be.
//
// Spec: 1.6.20.
func isText(v any) bool {
	switch v := v.(type) {
	case string:
		return utf8.ValidString(v)
	case []string:
		return !slices.ContainsFunc(v, func(s string) bool { return !utf8.ValidString(s) })
	case wire.List:
		for _, e := range v {
			if !isText(e) {
				return false
			}
		}
	case wire.Map:
		for _, e := range v {
			if !isText(e.Key) || !isText(e.Value) {
				return false
			}
		}
	}
	return true
}

// symbolMap turns a map of a user's values into one with symbols for keys.
func symbolMap(m map[string]any) (wire.Map, error) {
	if len(m) == 0 {
		return nil, nil
	}
	out := make(wire.Map, 0, len(m))
	for key, value := range m {
		if key == "" || !isASCII(key) {
			return nil, fmt.Errorf("key %q is empty or not ASCII", key)
		}
		v, err := encodable(key, value)
		if err != nil {
			return nil, err
		}
		out = append(out, wire.Entry{Key: wire.Symbol(key), Value: v})
	}
	return out, nil
}

// annotationMap turns annotations into a map of the wire. The standard keeps
// every key to itself that does not begin with "x-", ulongs included; brokers
// end the session over one.
//
// Spec: 3.2.10.
func annotationMap(annotations amqp.Annotations) (wire.Map, error) {
	if len(annotations) == 0 {
		return nil, nil
	}
	out := make(wire.Map, 0, len(annotations))
	for key, value := range annotations {
		name, err := annotationKey(key)
		if err != nil {
			return nil, err
		}
		v, err := encodable(name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, wire.Entry{Key: wire.Symbol(name), Value: v})
	}
	return out, nil
}

func annotationKey(key any) (name string, err error) {
	switch key := key.(type) {
	case string:
		name = key
	case amqp.Symbol:
		name = string(key)
	}
	if len(name) <= 2 || name[:2] != "x-" || !isASCII(name) {
		return "", fmt.Errorf(`annotation key %v (%T) is reserved: use an ASCII string that begins with "x-"`, key, key)
	}
	return name, nil
}

// goError gives an error of the peer as go-amqp's type, so that one errors.As
// finds it wherever it came from.
func goError(err error) error {
	var peer *dataplane.PeerError
	if !errors.As(err, &peer) || peer.Err == nil {
		return err
	}
	return &remoteError{text: err, err: amqpError(peer.Err)}
}

func amqpError(e *wire.Error) *amqp.Error {
	out := &amqp.Error{Condition: amqp.ErrCond(e.Condition), Description: e.Description}
	if len(e.Info) > 0 {
		out.Info = make(map[string]any, len(e.Info))
		for _, entry := range e.Info {
			if name, ok := toGo(entry.Key).(string); ok {
				out.Info[name] = toGo(entry.Value)
			}
		}
	}
	return out
}

// remoteError is an error of the data plane, with the peer's error in
// go-amqp's form beside it.
type remoteError struct {
	text error
	err  *amqp.Error
}

func (e *remoteError) Error() string   { return e.text.Error() }
func (e *remoteError) Unwrap() []error { return []error{e.text, e.err} }

// marshalable says whether go-amqp can encode a map of properties. One that it
// cannot would cost the connection.
func marshalable(m map[string]any) (err error) {
	if m == nil {
		return nil
	}
	if _, err := symbolMap(m); err != nil {
		return err
	}
	_, err = marshal(&amqp.Message{Value: m})
	return err
}

// marshal is m.MarshalBinary, with the panics of go-amqp's encoder as errors.
func marshal(m *amqp.Message) (data []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			data, err = nil, fmt.Errorf("go-amqp cannot encode the message: %v", v)
		}
	}()
	return m.MarshalBinary()
}
