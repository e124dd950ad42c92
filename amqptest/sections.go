package amqptest

import (
	"fmt"
	"strings"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// annotationKeys fails for a key that is no symbol beginning with "x-": all
// others are reserved, and this container knows none of them. Spec: 3.2.10.
func annotationKeys(s *wire.Sections) error {
	for _, section := range [...][]byte{s.DeliveryAnnotations, s.MessageAnnotations, s.Footer} {
		m, err := wire.DecodeMap(section)
		if err != nil {
			return err
		}
		for _, e := range m {
			switch k := e.Key.(type) {
			case wire.Symbol:
				if !strings.HasPrefix(string(k), "x-") {
					return fmt.Errorf("annotation key %q is reserved: it does not begin with x-", k)
				}
			case uint64:
				return fmt.Errorf("annotation key %d is reserved, as every ulong is", k)
			default:
				return fmt.Errorf("annotation key %v is neither symbol nor ulong", k)
			}
		}
	}
	return nil
}

// simpleValues fails for an application property of a compound type.
// Spec: 3.2.5.
func simpleValues(s *wire.Sections) error {
	m, err := wire.DecodeMap(s.ApplicationProperties)
	if err != nil {
		return err
	}
	for _, e := range m {
		switch e.Value.(type) {
		case wire.List, wire.Map, wire.Array, wire.Described:
			return fmt.Errorf("application property %q is a %T", e.Key, e.Value)
		}
	}
	return nil
}

// contentEncoding fails where content-encoding stands for no data section, or
// is one that nobody may name. Spec: 3.2.4.
func contentEncoding(s *wire.Sections) error {
	v, ok := wire.LookupProperty(s.Properties, wire.PropContentEncoding)
	if !ok {
		return nil
	}
	encoding, _, err := wire.DecodeValue(v)
	switch {
	case err != nil:
		return err
	case s.Body != wire.BodyData:
		return fmt.Errorf("content-encoding %q without a data section", encoding)
	case encoding == wire.Symbol("identity"):
		return fmt.Errorf("content-encoding identity")
	}
	return nil
}
