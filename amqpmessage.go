package amqpflow

import (
	"errors"
	"fmt"
	"maps"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// encodeAMQP appends an *amqp.Message as its MarshalBinary writes it, with the
// options that are set on a shallow copy. The message itself is not changed.
func encodeAMQP(dst []byte, addr Address, m *amqp.Message, o *PublishOptions, replyTo string) ([]byte, error) {
	failed := func(err error) ([]byte, error) { return nil, &EncodeError{Address: addr, Err: err} }
	if m == nil {
		return failed(errors.New("the *amqp.Message is nil"))
	}
	kinds := 0
	for _, present := range []bool{len(m.Data) > 0, m.Value != nil, len(m.Sequence) > 0} {
		if present {
			kinds++
		}
	}
	if kinds > 1 {
		return failed(errors.New("the *amqp.Message has more than one kind of body"))
	}
	out := *m
	if kinds == 0 { // a message without a body is one that strict peers refuse
		out.Data = [][]byte{{}}
	}
	o.override(&out, replyTo)
	for key := range out.Annotations { // their values are for go-amqp to write, which takes what it has decoded
		if _, err := annotationKey(key); err != nil {
			return failed(err)
		}
	}
	data, err := marshal(&out)
	if err != nil {
		return failed(err)
	}
	var sections wire.Sections // go-amqp writes what no peer reads, such as a message-id of a float
	if err := sections.Parse(data); err != nil {
		return failed(err)
	}
	return append(dst, data...), nil
}

// override puts the options that are set over the fields of m, whose sections
// are copied first.
func (o *PublishOptions) override(m *amqp.Message, replyTo string) {
	if o.TTL > 0 || o.Priority != nil || o.NonDurable {
		header := amqp.MessageHeader{Durable: true, Priority: defaultPriority}
		if m.Header != nil {
			header = *m.Header
		}
		if o.TTL > 0 {
			header.TTL = o.TTL
		}
		if o.Priority != nil {
			header.Priority = *o.Priority
		}
		if o.NonDurable {
			header.Durable = false
		}
		m.Header = &header
	}
	properties := amqp.MessageProperties{}
	if m.Properties != nil {
		properties = *m.Properties
	}
	if o.overrideProperties(&properties, replyTo) {
		m.Properties = &properties
	}
	if len(o.Headers) > 0 {
		headers := maps.Clone(m.ApplicationProperties)
		if headers == nil {
			headers = make(map[string]any, len(o.Headers))
		}
		maps.Copy(headers, o.Headers)
		m.ApplicationProperties = headers
	}
	if len(o.Annotations) > 0 {
		annotations := maps.Clone(m.Annotations)
		if annotations == nil {
			annotations = make(amqp.Annotations, len(o.Annotations))
		}
		maps.Copy(annotations, o.Annotations)
		m.Annotations = annotations
	}
}

func (o *PublishOptions) overrideProperties(p *amqp.MessageProperties, replyTo string) (set bool) {
	if o.MessageID != nil {
		p.MessageID, set = o.MessageID, true
	}
	if o.CorrelationID != nil {
		p.CorrelationID, set = o.CorrelationID, true
	}
	for _, field := range []struct {
		value string
		to    **string
	}{
		{o.Subject, &p.Subject}, {o.ContentType, &p.ContentType}, {o.GroupID, &p.GroupID}, {replyTo, &p.ReplyTo},
	} {
		if field.value != "" {
			*field.to, set = &field.value, true
		}
	}
	return set
}

var errNilPublisher = fmt.Errorf("%w: a zero Broker's publisher", ErrNotConnected)
