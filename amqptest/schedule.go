package amqptest

import (
	"math"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// The message annotations that say when a message is to be delivered.
const (
	deliveryTime  wire.Symbol = "x-opt-delivery-time"  // milliseconds since 1970, or a timestamp
	deliveryDelay wire.Symbol = "x-opt-delivery-delay" // milliseconds from its arrival
)

// schedule reads from the sections of m when it expires and when it is due.
func (m *message) schedule(sections *wire.Sections, d *dialect) {
	now := time.Now()
	if sections.Header.HasTTL && sections.Header.TTL > 0 {
		m.expires = now.Add(time.Duration(sections.Header.TTL) * time.Millisecond).UnixNano()
	}
	if d.absoluteExpiry && sections.Properties != nil {
		if v, ok := wire.LookupProperty(sections.Properties, wire.PropAbsoluteExpiryTime); ok {
			if at := dueAt(decoded(v), 0); at != 0 && (m.expires == 0 || at < m.expires) {
				m.expires = at
			}
		}
	}
	if d.scheduled && sections.MessageAnnotations != nil {
		if v, ok := wire.LookupString(sections.MessageAnnotations, string(deliveryTime)); ok {
			if at := decoded(v); d.timestamps || !isTimestamp(at) {
				m.due = dueAt(at, 0)
			}
		} else if v, ok := wire.LookupString(sections.MessageAnnotations, string(deliveryDelay)); ok {
			m.due = dueAt(decoded(v), now.UnixMilli())
		}
	}
}

func isTimestamp(v any) bool {
	_, ok := v.(time.Time)
	return ok
}

func decoded(encoded []byte) any {
	v, _, err := wire.DecodeValue(encoded)
	if err != nil {
		return nil // cannot be: the sections were parsed
	}
	return v
}

// dueAt is the time that v says, in Unix nanoseconds: a timestamp, or
// milliseconds after base. 0 if it says none, or one that is past for certain.
func dueAt(v any, base int64) int64 {
	const most = math.MaxInt64 / int64(time.Millisecond)
	var ms int64
	switch v := v.(type) {
	case time.Time:
		ms = v.UnixMilli()
	case int64:
		ms = v
	case uint64:
		ms = int64(min(v, math.MaxInt64))
	case int32:
		ms = int64(v)
	case uint32:
		ms = int64(v)
	default:
		return 0
	}
	if ms <= 0 {
		return 0
	}
	if ms > most-base {
		return math.MaxInt64
	}
	return (base + ms) * int64(time.Millisecond)
}

// left is what is left of the time-to-live, in milliseconds, rounded up.
// Spec: 3.2.1.
func (m *message) left() uint32 {
	left := time.Until(time.Unix(0, m.expires)) + time.Millisecond - 1
	return uint32(max(left/time.Millisecond, 0))
}

// postpone reads from the annotations of modified when m is due again.
func (m *message) postpone(annotations wire.Map) {
	if v := annotations.Get(deliveryTime); v != nil {
		m.due = dueAt(v, 0)
	} else if v := annotations.Get(deliveryDelay); v != nil {
		m.due = dueAt(v, time.Now().UnixMilli())
	}
}
