package amqpflow

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

var errDeadLetterToItself = &OptionError{Field: "SubscribeOptions.DeadLetter", Err: errors.New("is the address that is subscribed to")}

// The application properties of a dead letter.
const (
	letterPrefix      = "dead-letter-"
	letterReason      = letterPrefix + "reason"
	letterDescription = letterPrefix + "description"
	letterSource      = letterPrefix + "source"
	letterAttempts    = letterPrefix + "attempts"
	letterTime        = letterPrefix + "time"
)

const (
	// maxLetterDescription is in octets.
	maxLetterDescription = 1 << 10
	// maxLetterWait keeps a peer that does not take dead letters from stopping a
	// worker for good.
	maxLetterWait = 30 * time.Second
)

// putAside publishes a failed delivery to the dead-letter address and waits for
// the confirmation.
func (s *Subscription) putAside(ctx context.Context, f *failure) error {
	payload, err := s.deadLetterOf(f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, maxLetterWait)
	defer cancel()
	if s.c.worker(ctx) == nil { // a Stream's reader, which may publish while its broker drains, as a handler may
		ctx = context.WithValue(ctx, workerKey{}, newWorker(s, nil, 1))
	}
	return s.c.pub.forward(ctx, s.opts.DeadLetter, payload)
}

// deadLetterOf is the delivery's message with the reason.
//
// Spec: 3.2.
func (s *Subscription) deadLetterOf(f *failure) ([]byte, error) {
	var sections wire.Sections
	if err := sections.Parse(f.d.payload); err != nil {
		return nil, err
	}
	payload := make([]byte, 0, len(f.d.payload)+512)
	header := wire.Header{Durable: sections.Header.Durable, Priority: sections.Header.Priority}
	payload = header.Append(payload)
	payload, err := appendKeptAnnotations(payload, sections.MessageAnnotations)
	if err != nil {
		return nil, err
	}
	if sections.Properties != nil {
		var properties wire.Properties
		if err := properties.Decode(sections.Properties); err != nil {
			return nil, err
		}
		properties.UserID, properties.AbsoluteExpiryTime = nil, time.Time{}
		payload = properties.Append(payload)
	}
	if payload, err = s.appendReason(payload, sections.ApplicationProperties, f); err != nil {
		return nil, err
	}
	if sections.Body == wire.BodyNone {
		return wire.AppendData(payload, nil), nil
	}
	return append(payload, sections.RawBody()...), nil
}

// appendKeptAnnotations appends the annotations that any sender may set, but
// those that would delay the message again.
func appendKeptAnnotations(dst, annotations []byte) ([]byte, error) {
	if annotations == nil {
		return dst, nil
	}
	all, err := wire.DecodeMap(annotations)
	if err != nil {
		return nil, err
	}
	var kept wire.Map
	for _, e := range all {
		name, ok := e.Key.(wire.Symbol)
		if _, err := annotationKey(string(name)); ok && err == nil && name != deliveryTime && name != "x-opt-delivery-delay" {
			kept = append(kept, e)
		}
	}
	if len(kept) == 0 {
		return dst, nil
	}
	return wire.AppendSection(dst, wire.CodeMessageAnnotations, kept)
}

// appendReason appends the application properties with the reason, in place of
// that of an earlier time.
func (s *Subscription) appendReason(dst, headers []byte, f *failure) ([]byte, error) {
	var all wire.Map
	if headers != nil {
		original, err := wire.DecodeMap(headers)
		if err != nil {
			return nil, err
		}
		for _, e := range original {
			if name, ok := e.Key.(string); !ok || !strings.HasPrefix(name, letterPrefix) {
				all = append(all, e)
			}
		}
	}
	all = append(
		all,
		wire.Entry{Key: letterReason, Value: f.reason()},
		wire.Entry{Key: letterDescription, Value: clipTo(f.description(), maxLetterDescription)},
		wire.Entry{Key: letterSource, Value: string(s.addr)},
		wire.Entry{Key: letterAttempts, Value: int64(f.d.Attempt())},
		wire.Entry{Key: letterTime, Value: time.Now()},
	)
	return wire.AppendSection(dst, wire.CodeApplicationProperties, all)
}

// reason is the condition that the failure brings, else who decided.
func (f *failure) reason() string {
	if remote, ok := errors.AsType[*amqp.Error](f.err); ok && remote.Condition != "" {
		return string(remote.Condition)
	}
	if f.outcome == Modified {
		return "max-attempts"
	}
	return "handler"
}

func (f *failure) description() string {
	if f.chosen != nil && f.chosen.Err != nil {
		return f.chosen.Err.Error()
	}
	if f.chosen != nil {
		return f.chosen.Description
	}
	return f.err.Error()
}
