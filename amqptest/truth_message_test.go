package amqptest_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// otherFormat sends a message of a format that is not AMQP's.
func otherFormat(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.sender(n)
	payload, err := text("a").MarshalBinary()
	require.NoError(t, err)
	r.fragment(wire.Transfer{
		Handle: h, DeliveryID: wire.Some(0), DeliveryTag: []byte("0"), MessageFormat: wire.Some(7),
	}, payload)
	if s := r.outcome(); s != "accepted" {
		return s
	}
	x := openRaw(t, p).takeOne(n)
	return fmt.Sprintf("arrived as %d", x.MessageFormat.Value)
}

func noBody(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	s := publish(t, sending(t, session(t, p), n), &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "a"}})
	if s != "accepted" {
		return s
	}
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

func nothingAtAll(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	r.transfer(r.sender(n), nil)
	if s := r.outcome(); s != "accepted" {
		return s
	}
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

func twoDataSections(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, &amqp.Message{Data: [][]byte{[]byte("a"), []byte("b")}})
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

func sequenceBody(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, &amqp.Message{Sequence: [][]any{{"a"}, {"b"}}})
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

// valueBody has a list in it.
func valueBody(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, &amqp.Message{Value: []any{"a", int64(1)}})
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

// bodyOf says of what sections the body consists.
func bodyOf(t *testing.T, x *wire.Transfer) string {
	var s wire.Sections
	require.NoError(t, s.Parse(x.Payload))
	switch s.Body {
	case wire.BodyData:
		return fmt.Sprintf("%d data, %d bytes", s.DataCount, s.DataSize)
	case wire.BodySequence:
		return fmt.Sprintf("%d sequences", s.SequenceCount)
	case wire.BodyValue:
		return "value"
	}
	return "no body"
}

// noHeader says what the header of a message without one is when it arrives.
func noHeader(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	return headerOf(t, openRaw(t, p).takeOne(n))
}

func fullHeader(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Header = &amqp.MessageHeader{Durable: true, Priority: 7, TTL: 3600_000_000_000, DeliveryCount: 2}
	put(t, p, n, m)
	return headerOf(t, openRaw(t, p).takeOne(n))
}

func headerOf(t *testing.T, x *wire.Transfer) string {
	var s wire.Sections
	require.NoError(t, s.Parse(x.Payload))
	h := s.Header
	r := fmt.Sprintf("priority %d, count %d", h.Priority, h.DeliveryCount)
	if h.Durable {
		r = "durable, " + r
	}
	if h.FirstAcquirer {
		r += ", first"
	}
	if h.HasTTL {
		r += ", ttl"
	}
	return r
}

// annotated publishes a message with an annotation under a reserved key.
func annotated(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Annotations = amqp.Annotations{"color": "red", "x-opt-size": "big"}
	r := openRaw(t, p)
	s := r.publish(r.sender(n), m)
	if s != "accepted" {
		return s
	}
	return s + ", " + strings.Join(annotationsOf(t, openRaw(t, p).takeOne(n)), " ")
}

// annotationsOf are the keys of the message annotations in order.
func annotationsOf(t *testing.T, x *wire.Transfer) []string {
	var m amqp.Message
	require.NoError(t, m.UnmarshalBinary(x.Payload))
	var keys []string
	for k := range m.Annotations {
		keys = append(keys, fmt.Sprint(k))
	}
	slices.Sort(keys)
	return keys
}

// added are the keys of the annotations that a broker adds.
func added(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	return cmp.Or(strings.Join(annotationsOf(t, openRaw(t, p).takeOne(n)), " "), "none")
}

// sections sends a message with each section and says which of them arrive.
func sections(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.DeliveryAnnotations = amqp.Annotations{"x-opt-d": "1"}
	m.Annotations = amqp.Annotations{"x-opt-m": "1"}
	m.ApplicationProperties = map[string]any{"a": "1"}
	m.Footer = amqp.Annotations{"x-opt-f": "1"}
	put(t, p, n, m)
	var s wire.Sections
	require.NoError(t, s.Parse(openRaw(t, p).takeOne(n).Payload))
	var got []string
	for _, section := range []struct {
		name  string
		bytes []byte
	}{
		{"delivery-annotations", s.DeliveryAnnotations}, {"message-annotations", s.MessageAnnotations},
		{"properties", s.Properties}, {"application-properties", s.ApplicationProperties}, {"footer", s.Footer},
	} {
		if section.bytes == nil {
			got = append(got, "no "+section.name)
		}
	}
	if got == nil {
		return "all"
	}
	return strings.Join(got, ", ")
}
