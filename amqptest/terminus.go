package amqptest

import (
	"slices"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	distributionCopy wire.Symbol = "copy"
	capabilityGlobal wire.Symbol = "global"
	capabilityShared wire.Symbol = "shared"
)

// resolve finds, or makes, the node that the attach asks for, and what the
// answer says of it. It returns why the attach is refused, nil if it is not.
// Spec: 2.6.3, 3.5.
func (l *link) resolve(a *wire.Attach) *wire.Error {
	switch {
	case l.role == wire.RoleSender && a.Source == nil:
		return &l.ses.conn.srv.dialect.noSource
	case l.role == wire.RoleSender:
		return l.resolveSource(*a.Source)
	case a.Coordinator != nil:
		return refusal(amqp.ErrCondNotImplemented, "transactions are not implemented")
	case a.Target == nil:
		return refusal(amqp.ErrCondInvalidField, "an attach without a target")
	default:
		return l.resolveTarget(*a.Target)
	}
}

func (l *link) resolveSource(t wire.Source) *wire.Error {
	l.address = t.Address
	if !l.ses.conn.srv.dialect.ignoresTerminus {
		if e := unsupported(&t); e != nil {
			return e
		}
	}
	t.Filter = nil // none is applied
	n, properties, e := l.find(t.Dynamic, t.DynamicNodeProperties, t.Address, t.Capabilities)
	switch {
	case e != nil:
		return e
	case n == nil:
		return &l.ses.conn.srv.dialect.noSourceAddress
	case n.kind == kindTopic && durable(&t):
		return refusal(amqp.ErrCondNotImplemented, "durable subscriptions are not implemented")
	}
	t.Durable = wire.DurableNone // no state outlives the link
	if t.Dynamic {
		t.Address, t.HasAddress, t.DynamicNodeProperties = n.name, true, properties
	}
	if t.DefaultOutcome == nil {
		t.DefaultOutcome = l.ses.conn.srv.dialect.defaultOutcome
	}
	l.source, l.queue = &t, n.source()
	l.browses = n.kind == kindQueue && t.DistributionMode == distributionCopy && l.ses.conn.srv.dialect.browses
	l.enter(n)
	return nil
}

// unsupported is why a source is refused whatever its node is.
func unsupported(t *wire.Source) *wire.Error {
	if t.Dynamic && durable(t) {
		return refusal(amqp.ErrCondNotImplemented, "durable dynamic nodes are not implemented")
	}
	if slices.Contains(t.Capabilities, capabilityShared) || slices.Contains(t.Capabilities, capabilityGlobal) {
		return refusal(amqp.ErrCondNotImplemented, "shared subscriptions are not implemented")
	}
	for _, f := range t.Filter {
		if v, ok := f.Value.(wire.Described); ok && (v.Descriptor == selectorName || v.Descriptor == selectorCode) {
			return refusal(amqp.ErrCondNotImplemented, "selectors are not implemented")
		}
	}
	return nil
}

// durable says whether t is to outlive its connection.
func durable(t *wire.Source) bool {
	return t.Durable != wire.DurableNone || t.ExpiryPolicy == wire.ExpireNever
}

// The descriptors of the selector filter, which would have to be honoured.
const (
	selectorName wire.Symbol = "apache.org:selector-filter:string"
	selectorCode uint64      = 0x468c00000004
)

func (l *link) resolveTarget(t wire.Target) *wire.Error {
	l.address = t.Address
	n, properties, e := l.find(t.Dynamic, t.DynamicNodeProperties, t.Address, t.Capabilities)
	if e != nil {
		return e
	}
	if n == nil {
		if t.HasAddress {
			return refusal(amqp.ErrCondInvalidField, "an attach to an empty address")
		}
		n = l.ses.conn.srv.anonymous
	}
	t.Durable = wire.DurableNone
	if t.Dynamic {
		t.Address, t.HasAddress, t.DynamicNodeProperties = n.name, true, properties
	}
	l.target = &t
	l.enter(n)
	return nil
}

// find returns the node of a terminus, with its properties if it is dynamic;
// nil if the terminus has no address.
func (l *link) find(dynamic bool, asked wire.Map, name string, capabilities []wire.Symbol) (*node, wire.Map, *wire.Error) {
	s := l.ses.conn.srv
	kind, e := kindOf(capabilities)
	if e != nil {
		return nil, nil, e
	}
	switch {
	case dynamic:
		return s.dynamicNode(l, asked, kind)
	case name == "":
		return nil, nil, nil
	default:
		n, e := s.dialect.node(s, name, kind, l.role)
		return n, nil, e
	}
}

// kindOf is what the capabilities of a terminus ask for.
func kindOf(capabilities []wire.Symbol) (nodeKind, *wire.Error) {
	queue := slices.Contains(capabilities, address.CapabilityQueue) || slices.Contains(capabilities, "temporary-queue")
	topic := slices.Contains(capabilities, address.CapabilityTopic) || slices.Contains(capabilities, "temporary-topic")
	switch {
	case queue && topic:
		return kindAny, refusal(amqp.ErrCondNotImplemented, "a node that is a queue and a topic is not implemented")
	case queue:
		return kindQueue, nil
	case topic:
		return kindTopic, nil
	default:
		return kindAny, nil
	}
}

// enter puts l on the links of n.
func (l *link) enter(n *node) {
	l.node, l.address = n, n.name
	n.links = append(n.links, l)
	if l.queue != nil {
		l.queue.links = append(l.queue.links, l)
	}
}

func refusal(cond amqp.ErrCond, description string) *wire.Error {
	return &wire.Error{Condition: wire.Symbol(cond), Description: description}
}
