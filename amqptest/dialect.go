package amqptest

import (
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// dialect is what differs between the brokers that a Server answers as.
type dialect struct {
	names         amqpflow.Dialect // how addresses become names
	properties    wire.Map         // of OPEN
	offered       []wire.Symbol    // in OPEN
	dynamicPrefix string           // of the names of dynamic nodes
	steals        bool             // a second attach under the same name closes the first
	noAddress     wire.State       // the answer to a message without "to" at the anonymous terminus

	// node returns the node of that name for a link of ours in that role, or
	// why there is none.
	node func(s *Server, name string, kind nodeKind, role wire.Role) (*node, *wire.Error)
}

// generic tells queues and topics by capability, and makes what is missing.
var generic = &dialect{
	names:         address.Generic,
	properties:    wire.Map{{Key: wire.Symbol("product"), Value: containerID}},
	offered:       []wire.Symbol{capabilityRelay},
	dynamicPrefix: "amqptest.dynamic.",
	steals:        true,
	noAddress:     rejected(amqp.ErrCondPreconditionFailed, "a message without an address for the anonymous terminus"),
	node:          genericNode,
}

func genericNode(s *Server, name string, kind nodeKind, _ wire.Role) (*node, *wire.Error) {
	if s.nodes[name] == nil && strings.HasPrefix(name, s.dialect.dynamicPrefix) {
		return nil, refusal(amqp.ErrCondNotFound, "the dynamic node was deleted")
	}
	return s.node(name, kind)
}

// nameOf returns the name on the wire of the node at addr, and its kind.
func (s *Server) nameOf(addr amqpflow.Address) (string, nodeKind, error) {
	a, err := address.Parse(string(addr))
	if err != nil {
		return "", kindAny, err
	}
	n, err := a.Target(s.dialect.names)
	if err != nil {
		return "", kindAny, err
	}
	return n.Address, [...]nodeKind{address.KindQueue: kindQueue, address.KindTopic: kindTopic, address.KindRaw: kindAny}[a.Kind], nil
}

// nodeAt returns the node at addr, which it makes if there is none.
func (s *Server) nodeAt(addr amqpflow.Address) (*node, error) {
	name, kind, err := s.nameOf(addr)
	if err != nil {
		return nil, err
	}
	n, e := s.dialect.node(s, name, kind, wire.RoleReceiver)
	if e != nil {
		return nil, e
	}
	return n, nil
}
