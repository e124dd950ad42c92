package amqptest

import (
	"fmt"
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// symbolKeys says whether m is what the standard calls fields. Spec: 2.8.13.
func symbolKeys(m wire.Map) bool {
	return !slices.ContainsFunc(m, func(e wire.Entry) bool {
		_, ok := e.Key.(wire.Symbol)
		return !ok
	})
}

// symbolKeysHold checks properties.
func (c *conn) symbolKeysHold(of string, properties wire.Map) bool {
	if symbolKeys(properties) {
		return true
	}
	c.violatef(ruleFields, "properties of %s with a key that is no symbol", of)
	return false
}

// fieldsHold checks the info of an error. Strings for keys pass: go-amqp
// writes them, and the brokers take them.
func (c *conn) fieldsHold(of string, e *wire.Error) bool {
	if e == nil {
		return true
	}
	for _, entry := range e.Info {
		switch entry.Key.(type) {
		case wire.Symbol, string:
		default:
			c.violatef(ruleFields, "info of the error of %s with key %v", of, entry.Key)
			return false
		}
	}
	return true
}

// flowHolds checks a flow against what the session knows. Spec: 2.7.4, 2.5.6.
func (ses *session) flowHolds(f *wire.Flow) bool {
	c := ses.conn
	next := f.NextIncomingID.Value
	switch {
	case ses.heard && !f.NextIncomingID.Set:
		c.violatef(ruleSessionFlow, "flow: no next-incoming-id, which was %d already", ses.heardNext)
	case after(next, ses.nextOut):
		c.violatef(ruleSessionID, "flow: next-incoming-id %d, but %d has not been sent", next, ses.nextOut)
	case ses.heard && after(ses.heardNext, next):
		c.violatef(ruleSessionID, "flow: next-incoming-id %d, which was %d already", next, ses.heardNext)
	case f.NextOutgoingID != ses.nextIn:
		c.violatef(ruleSessionID, "flow: next-outgoing-id %d, but %d comes next", f.NextOutgoingID, ses.nextIn)
	case !f.Handle.Set && (f.DeliveryCount.Set || f.LinkCredit.Set || f.Available.Set || f.Drain):
		c.violatef(ruleSessionFlow, "flow: a link's state without a handle")
	case f.Properties != nil && !c.flowPropertiesHold(f):
	default:
		if f.NextIncomingID.Set {
			ses.heard, ses.heardNext = true, next
		}
		return true
	}
	return false
}

func (c *conn) flowPropertiesHold(f *wire.Flow) bool {
	m, err := wire.DecodeMap(f.Properties)
	if err != nil {
		c.violatef(rulePerformative, "flow: %v", err)
		return false
	}
	return c.symbolKeysHold("flow", m)
}

// flowHolds checks a flow against what the link knows. Spec: 2.6.7.
func (l *link) flowHolds(f *wire.Flow) bool {
	c, count := l.ses.conn, f.DeliveryCount.Value
	if l.role == wire.RoleReceiver {
		// Whether a delivery counts with its first or with its last frame is open.
		begun := l.partial != nil && count == l.count-1
		switch {
		case !f.DeliveryCount.Set:
			c.violatef(ruleDeliveryCount, "flow on link %q: a sender's without delivery-count", l.name)
		case count != l.count && !begun:
			c.violatef(ruleDeliveryCount, "flow on link %q: delivery-count %d, but it is at %d", l.name, count, l.count)
		default:
			return true
		}
		return false
	}
	switch {
	case !f.DeliveryCount.Set && l.heard:
		c.violatef(ruleDeliveryCount, "flow on link %q: no delivery-count, which was %d already", l.name, l.heardCount)
	case after(count, l.count):
		c.violatef(ruleDeliveryCount, "flow on link %q: delivery-count %d, but it is at %d", l.name, count, l.count)
	case l.heard && after(l.heardCount, count):
		c.violatef(ruleDeliveryCount, "flow on link %q: delivery-count %d, which was %d already", l.name, count, l.heardCount)
	default:
		if f.DeliveryCount.Set {
			l.heard, l.heardCount = true, count
		}
		return true
	}
	return false
}

// transferStateHolds checks what a publisher says of its own delivery.
// Spec: 3.4.1, 4.4.2.
func (ses *session) transferStateHolds(t *wire.Transfer) bool {
	c, kind := ses.conn, t.State.Kind
	switch {
	case kind == wire.StateTransactional:
		c.violatef(ruleTransaction, "delivery %d is in transaction %x", t.DeliveryID.Value, t.State.TxnID)
	case kind == wire.StateUnknown || kind == wire.StateDeclared || kind == wire.StateReceived && !t.Resume:
		c.violatef(ruleState, "delivery %d comes with a state that its sender may not say", t.DeliveryID.Value)
	default:
		return c.fieldsHold("a transfer", t.State.Error)
	}
	return false
}

// dispositionHolds checks the state of a disposition. Spec: 3.4, 4.4.
func (ses *session) dispositionHolds(d *wire.Disposition) bool {
	c, kind := ses.conn, d.State.Kind
	switch {
	case !symbolKeys(d.State.Annotations):
		c.violatef(ruleFields, "message-annotations of deliveries %d to %d with a key that is no symbol", d.First, d.Last)
	case kind == wire.StateTransactional:
		c.violatef(ruleTransaction, "deliveries %d to %d are in transaction %x", d.First, d.Last, d.State.TxnID)
	case kind == wire.StateUnknown || kind == wire.StateDeclared || kind == wire.StateReceived && d.Role == wire.RoleSender:
		c.violatef(ruleState, "deliveries %d to %d are given a state that a %s may not say", d.First, d.Last, d.Role)
	default:
		return c.fieldsHold("a disposition", d.State.Error)
	}
	return false
}

// outcomeHolds checks an outcome against those that the source has.
// Spec: 3.5.3.
func (l *link) outcomeHolds(id uint32, s *wire.State) bool {
	if len(l.outcomes) == 0 || !s.Terminal() || slices.Contains(l.outcomes, outcomeSymbol(s.Kind)) {
		return true
	}
	l.ses.conn.violatef(ruleState, "link %q: delivery %d is %s, which is not among the source's outcomes %v",
		l.name, id, outcomeSymbol(s.Kind), l.outcomes)
	return false
}

// outcomeSymbol is the symbolic descriptor of an outcome, "" for any other
// state. Spec: 3.4.
func outcomeSymbol(kind wire.StateKind) wire.Symbol {
	switch kind {
	case wire.StateAccepted:
		return "amqp:accepted:list"
	case wire.StateRejected:
		return "amqp:rejected:list"
	case wire.StateReleased:
		return "amqp:released:list"
	case wire.StateModified:
		return "amqp:modified:list"
	default:
		return ""
	}
}

// forget takes the publisher's settlement of one of its deliveries.
func (ses *session) forget(id uint32) bool {
	if a := ses.unsettledIn[id]; a != nil {
		delete(a.link.tags, a.tag)
		delete(ses.unsettledIn, id)
		return true
	}
	if ses.over.has(id) {
		return true // may have crossed our own
	}
	for _, l := range ses.links {
		if p := l.partial; p != nil && p.id == id && l.role == wire.RoleReceiver {
			p.forgotten = true
			return true
		}
	}
	ses.conn.violatef(ruleSettledTwice, "delivery %d of the client's is settled already", id)
	return false
}

// messageHolds checks what newMessage leaves open. Spec: 3.2.
func messageHolds(s *wire.Sections) (rule, error) {
	if s.Body == wire.BodyNone {
		return ruleMessage, fmt.Errorf("no body")
	}
	if err := s.CheckProperties(); err != nil {
		return ruleMessage, err
	}
	if err := s.CheckValues(); err != nil {
		return ruleValue, err
	}
	if err := annotationKeys(s); err != nil {
		return ruleAnnotations, err
	}
	if err := contentEncoding(s); err != nil {
		return ruleProperties, err
	}
	return ruleApplication, simpleValues(s)
}
