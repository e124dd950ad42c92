package amqptest

import (
	"errors"
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
	echoes        bool             // a session answers an echo
	suspends      bool             // a detach that does not close leaves the deliveries live
	steals        bool             // a second attach under the same name closes the first
	noAddress     wire.State       // the answer to a message without "to" at the anonymous terminus

	deadLetter     string // the queue of dead letters by default, "" for none
	expiry         string // the queue of what has expired by default
	absoluteExpiry bool   // absolute-expiry-time counts
	reducesTTL     bool   // a delivery carries what is left of its time-to-live
	scheduled      bool   // a message is delivered when its annotation says

	// node returns the node of that name for a link of ours in that role, or
	// why there is none.
	node func(s *Server, name string, kind nodeKind, role wire.Role) (*node, *wire.Error)
	// make returns the node of that name, which it makes if there is none.
	make func(s *Server, name string, kind nodeKind) (*node, *wire.Error)
	// grave returns the queue for dead letters, nil if there is none.
	grave func(s *Server, name string) *node
	// mark says in m, a dead letter of n, where it died and why.
	mark func(n *node, m *message, reason string)
	// full is the answer to a message for which n has no room.
	full func(n *node) wire.State
	// checkOptions says which of the options mean nothing.
	checkOptions func(o *NodeOptions) error
	// bind makes the bindings of the queue of that name.
	bind func(s *Server, queue string, bindings []string) error
}

// generic tells queues and topics by capability, and makes what is missing.
var generic = &dialect{
	names:          address.Generic,
	properties:     wire.Map{{Key: wire.Symbol("product"), Value: containerID}},
	offered:        []wire.Symbol{capabilityRelay},
	dynamicPrefix:  "amqptest.dynamic.",
	echoes:         true,
	suspends:       true,
	steals:         true,
	noAddress:      rejected(amqp.ErrCondPreconditionFailed, "a message without an address for the anonymous terminus"),
	absoluteExpiry: true,
	reducesTTL:     true,
	scheduled:      true,
	node:           genericNode,
	make:           func(s *Server, name string, kind nodeKind) (*node, *wire.Error) { return s.node(name, kind) },
	grave:          genericGrave,
	mark:           func(*node, *message, string) {},
	full:           genericFull,
	checkOptions:   noRabbitOptions,
	bind:           func(*Server, string, []string) error { return nil },
}

func genericGrave(s *Server, name string) *node {
	n, e := s.node(name, kindQueue)
	if e != nil {
		return nil // a topic that was made meanwhile
	}
	return n
}

func noRabbitOptions(o *NodeOptions) error {
	var errs []error
	if o.QueueType != QuorumQueue {
		errs = append(errs, errors.New("NodeOptions.QueueType: only DialectRabbitMQ has queue types"))
	}
	if len(o.Bind) > 0 {
		errs = append(errs, errors.New("NodeOptions.Bind: only DialectRabbitMQ has exchanges"))
	}
	return errors.Join(errs...)
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

// makeAt returns the node at addr, which it makes if there is none.
func (s *Server) makeAt(addr amqpflow.Address) (*node, error) {
	name, kind, err := s.nameOf(addr)
	if err != nil {
		return nil, err
	}
	n, e := s.dialect.make(s, name, kind)
	if e != nil {
		return nil, e
	}
	return n, nil
}
