package amqptest

import (
	"fmt"
	"reflect"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// encode makes messages to be stored of go-amqp's.
func (s *Server) encode(ms []*amqp.Message) ([]*message, error) {
	var sections wire.Sections
	r := make([]*message, len(ms))
	for i, m := range ms {
		if m == nil {
			return nil, fmt.Errorf("message %d is nil", i)
		}
		payload, err := m.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if r[i], err = newMessage(&sections, m.Format, payload, s.dialect); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return r, nil
}

// amqpError is e for the users of go-amqp's types.
func amqpError(e *wire.Error) *amqp.Error {
	if e == nil {
		return nil
	}
	r := &amqp.Error{Condition: amqp.ErrCond(e.Condition), Description: e.Description}
	for _, entry := range e.Info {
		if r.Info == nil {
			r.Info = map[string]any{}
		}
		r.Info[fmt.Sprint(entry.Key)] = goValue(entry.Value)
	}
	return r
}

// wireError is e as an error, nil if there is none.
func wireError(e *wire.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// goValue replaces the types of package wire by those that go-amqp decodes to.
func goValue(v any) any {
	switch v := v.(type) {
	case wire.Symbol:
		return string(v)
	case wire.UUID:
		return amqp.UUID(v)
	case wire.List:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = goValue(e)
		}
		return list
	case wire.Map:
		m := make(map[any]any, len(v))
		for _, e := range v {
			// A client may use a list or a binary for a key, which no Go map takes.
			if key := goValue(e.Key); reflect.ValueOf(key).Comparable() {
				m[key] = goValue(e.Value)
			}
		}
		return m
	default:
		return v
	}
}

// errorOf is e on the wire. It fails on an info that cannot be encoded.
func errorOf(e *amqp.Error) (*wire.Error, error) {
	if e == nil {
		return nil, nil
	}
	r := refusal(e.Condition, e.Description)
	for key, v := range e.Info {
		v = wireValue(v)
		if _, err := wire.AppendValue(nil, v); err != nil {
			return nil, fmt.Errorf("info %q: %w", key, err)
		}
		r.Info = append(r.Info, wire.Entry{Key: wire.Symbol(key), Value: v})
	}
	return r, nil
}

// wireValue replaces go-amqp's own types by those of package wire.
func wireValue(v any) any {
	switch v := v.(type) {
	case amqp.Symbol:
		return wire.Symbol(v)
	case amqp.UUID:
		return wire.UUID(v)
	default:
		return v
	}
}
