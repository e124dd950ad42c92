package amqptest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
)

// Settlement is what a consumer made of one delivery.
type Settlement struct {
	// MessageID is the message-id as text, "" if there is none.
	MessageID string
	// Outcome is OutcomeNone where the consumer settled without a state,
	// which puts the message back.
	Outcome amqpflow.Outcome
	// Error goes with Rejected; it may be nil.
	Error *amqp.Error
	// DeliveryCount is the delivery-count that the delivery carried.
	DeliveryCount uint32
}

// Put appends messages to the queue at addr, which it makes if there is none;
// at a topic it publishes them, which gives one to each subscription. All of
// them are stored, or none. A header's delivery-count is where counting
// starts.
//
// It returns an error if addr cannot be parsed or names a node of the other
// kind, or a message cannot be encoded, ErrClosed after Close, and a bad
// option of the server.
func (s *Server) Put(addr amqpflow.Address, ms ...*amqp.Message) error {
	if err := s.usable(); err != nil {
		return err
	}
	if _, _, err := s.nameOf(addr); err != nil {
		return fmt.Errorf("amqptest: put: %w", err)
	}
	stored, err := s.encode(ms)
	if err != nil {
		return fmt.Errorf("amqptest: put to %q: %w", addr, err)
	}
	s.lock()
	defer s.unlock()
	n, err := s.makeAt(addr)
	if err != nil {
		return fmt.Errorf("amqptest: put to %q: %w", addr, err)
	}
	for _, m := range stored {
		n.store(m)
	}
	return nil
}

// Messages returns what waits in the queue at addr, in order, without taking
// it; for a topic what waits for its subscriptions, for an exchange what waits
// in the queues bound to it, one after the other. What consumers hold unsettled
// is not among it. A message whose format is not 0, or that go-amqp cannot
// decode, has all its bytes in Data.
func (s *Server) Messages(addr amqpflow.Address) []*amqp.Message {
	return inspect(s, addr, func(n *node) []*amqp.Message { return decodeAll(n.waiting()) })
}

// DeadLetters returns the messages of the queue or topic at addr that were
// rejected or delivered too often, that have expired, and that a full queue
// has pushed out, in the order in which that happened.
func (s *Server) DeadLetters(addr amqpflow.Address) []*amqp.Message {
	return inspect(s, addr, func(n *node) []*amqp.Message { return decodeAll(n.dead) })
}

// Settlements returns what consumers made of the deliveries of the queue at
// addr, in the order in which they said so. What was sent settled, or went
// back because a link, session or connection ended, is not among it.
func (s *Server) Settlements(addr amqpflow.Address) []Settlement {
	return inspect(s, addr, func(n *node) []Settlement { return slices.Clone(n.settlements) })
}

// inspect asks the node at addr; none if there is none. An exchange has nothing
// of its own: the queues that are bound to it are asked.
func inspect[T any](s *Server, addr amqpflow.Address, ask func(*node) []T) []T {
	name, _, err := s.nameOf(addr)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []T
	for _, n := range s.nodesAt(name) {
		all = append(all, ask(n)...)
	}
	return all
}

func decodeAll(ms []*message) []*amqp.Message {
	r := make([]*amqp.Message, len(ms))
	for i, m := range ms {
		r[i] = m.decode()
	}
	return r
}

// Bodies decodes the bodies of Messages(addr): []byte, string and
// json.RawMessage take the bytes, every other T is decoded as JSON. The bytes
// are the data sections, or an amqp-value that is a string or binary.
//
// It returns an error if a body is none of these or cannot be decoded, if addr
// cannot be parsed, and for a bad option of the server.
func Bodies[T any](s *Server, addr amqpflow.Address) ([]T, error) {
	if s.err != nil {
		return nil, s.err
	}
	if _, _, err := s.nameOf(addr); err != nil {
		return nil, fmt.Errorf("amqptest: bodies: %w", err)
	}
	ms := s.Messages(addr)
	r := make([]T, len(ms))
	for i, m := range ms {
		if err := decodeBody(m, &r[i]); err != nil {
			return nil, fmt.Errorf("amqptest: bodies of %q: message %d: %w", addr, i, err)
		}
	}
	return r, nil
}

func decodeBody(m *amqp.Message, into any) error {
	body, err := bodyBytes(m)
	if err != nil {
		return err
	}
	switch v := into.(type) {
	case *[]byte:
		*v = body
	case *string:
		*v = string(body)
	case *json.RawMessage:
		*v = body
	default:
		return json.Unmarshal(body, into)
	}
	return nil
}

func bodyBytes(m *amqp.Message) ([]byte, error) {
	switch v := m.Value.(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	case nil:
	default:
		return nil, fmt.Errorf("an amqp-value of type %T", v)
	}
	if len(m.Sequence) > 0 {
		return nil, fmt.Errorf("an amqp-sequence")
	}
	return slices.Concat(m.Data...), nil
}
