package amqptest

import (
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// attachHolds checks what an attach says of its link. Spec: 2.7.3, 3.5.
func (ses *session) attachHolds(a *wire.Attach) bool {
	c := ses.conn
	return c.symbolKeysHold("attach", a.Properties) &&
		c.unsettledHolds(a) && c.sourceHolds(a) && c.targetHolds(a)
}

// unsettledHolds checks the client's map of unsettled deliveries.
func (c *conn) unsettledHolds(a *wire.Attach) bool {
	for _, e := range a.Unsettled {
		switch key, ok := e.Key.([]byte); {
		case !ok:
			c.violatef(ruleUnsettled, "attach of %q: key %v of unsettled is no delivery-tag", a.Name, e.Key)
			return false
		case len(key) > maxDeliveryTag:
			c.violatef(ruleUnsettled, "attach of %q: a delivery-tag of %d bytes in unsettled", a.Name, len(key))
			return false
		case e.Value != nil && !isState(e.Value):
			c.violatef(ruleUnsettled, "attach of %q: the value of delivery-tag %x in unsettled is no delivery state", a.Name, key)
			return false
		}
	}
	return true
}

// isState says whether v is a delivery state of the standard.
func isState(v any) bool {
	d, ok := v.(wire.Described)
	if !ok {
		return false
	}
	switch d.Descriptor {
	case wire.CodeReceived, wire.CodeAccepted, wire.CodeRejected, wire.CodeReleased, wire.CodeModified,
		wire.CodeDeclared, wire.CodeTransactionalState,
		wire.Symbol("amqp:received:list"), wire.Symbol("amqp:accepted:list"), wire.Symbol("amqp:rejected:list"),
		wire.Symbol("amqp:released:list"), wire.Symbol("amqp:modified:list"),
		wire.Symbol("amqp:declared:list"), wire.Symbol("amqp:transactional-state:list"):
		return true
	}
	return false
}

func (c *conn) sourceHolds(a *wire.Attach) bool {
	s := a.Source
	if s == nil {
		return true
	}
	if !c.terminusHolds(a, "source", &common{
		durable: s.Durable, expiry: s.ExpiryPolicy, dynamic: s.Dynamic, properties: s.DynamicNodeProperties,
		wanted: s.Dynamic && a.Role == wire.RoleReceiver && s.HasAddress,
	}) {
		return false
	}
	switch {
	case s.DistributionMode != "" && s.DistributionMode != "move" && s.DistributionMode != "copy":
		c.violatef(ruleTerminus, "source of %q: distribution-mode %q does not exist", a.Name, s.DistributionMode)
	case s.DefaultOutcome != nil && outcomeSymbol(s.DefaultOutcome.Kind) == "":
		c.violatef(ruleTerminus, "source of %q: the default-outcome is no outcome", a.Name)
	case slices.ContainsFunc(s.Outcomes, func(o wire.Symbol) bool { return !slices.Contains(outcomes, o) }):
		c.violatef(ruleTerminus, "source of %q: outcomes %v, of which not all exist", a.Name, s.Outcomes)
	case !filtersHold(s.Filter):
		c.violatef(ruleTerminus, "source of %q: a filter that has no symbol for its name or no description", a.Name)
	default:
		return true
	}
	return false
}

// outcomes are the symbolic descriptors of those that there are.
var outcomes = []wire.Symbol{
	"amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list",
	"amqp:declared:list", "amqp:transactional-state:list",
}

// filtersHold checks a filter-set. Spec: 3.5.8.
func filtersHold(filters wire.Map) bool {
	return symbolKeys(filters) && !slices.ContainsFunc(filters, func(e wire.Entry) bool {
		_, described := e.Value.(wire.Described)
		return e.Value != nil && !described
	})
}

func (c *conn) targetHolds(a *wire.Attach) bool {
	t := a.Target
	if t == nil {
		return true
	}
	return c.terminusHolds(a, "target", &common{
		durable: t.Durable, expiry: t.ExpiryPolicy, dynamic: t.Dynamic, properties: t.DynamicNodeProperties,
		wanted: t.Dynamic && a.Role == wire.RoleSender && t.HasAddress,
	})
}

// common is what source and target have in common.
type common struct {
	durable    uint32
	expiry     wire.Symbol
	dynamic    bool
	properties wire.Map // of the dynamic node
	wanted     bool     // the client asks for a dynamic node of an address of its own
}

func (c *conn) terminusHolds(a *wire.Attach, end string, t *common) bool {
	switch {
	case t.durable > wire.DurableUnsettledState:
		c.violatef(ruleTerminus, "%s of %q: durable %d does not exist", end, a.Name, t.durable)
	case !slices.Contains(expiries, t.expiry):
		c.violatef(ruleTerminus, "%s of %q: expiry-policy %q does not exist", end, a.Name, t.expiry)
	case t.wanted:
		c.violatef(ruleTerminus, "%s of %q: dynamic, and with an address", end, a.Name)
	case !t.dynamic && t.properties != nil:
		c.violatef(ruleTerminus, "%s of %q: dynamic-node-properties of a node that is not dynamic", end, a.Name)
	case !symbolKeys(t.properties):
		c.violatef(ruleFields, "%s of %q: dynamic-node-properties with a key that is no symbol", end, a.Name)
	default:
		return true
	}
	return false
}

var expiries = []wire.Symbol{
	"", wire.ExpireLinkDetach, wire.ExpireSessionEnd, wire.ExpireConnectionClose, wire.ExpireNever,
}
