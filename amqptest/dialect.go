package amqptest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// dialect is what differs between the brokers that a Server answers as. Those
// of real brokers were measured: a value that looks odd is what they do.
type dialect struct {
	names      amqpflow.Dialect // how addresses become names
	properties wire.Map         // of OPEN
	offered    []wire.Symbol    // in OPEN

	// Defaults of Options, and limits.
	channelMax     uint16
	handleMax      uint32
	window         uint32
	idleTimeout    time.Duration
	maxDeliveries  int
	credit         uint32 // of a publisher
	maxMessageSize uint64 // 0: no limit

	// Links.
	steals          bool           // a second attach under the same name closes the first
	suspends        bool           // a detach that does not close keeps the deliveries unsettled
	muteLinks       bool           // an echo of a link's state is not answered
	trails          bool           // an outcome without settlement is answered by one
	unstated        wire.StateKind // what it means to settle without an outcome; StateUnknown: the session is ended
	defaultOutcome  *wire.State    // of a source, in the answer to an attach that has none
	ignoresTerminus bool
	endsSession     bool         // of a link beyond handle-max; the others close the connection
	echoes          bool         // an echo of the session's state is answered
	browses         bool         // distribution-mode copy takes nothing
	second          bool         // rcv-settle-mode second is kept
	untyped         nodeKind     // what is made where an attach does not say
	mismatch        amqp.ErrCond // of an attach to a node of the other kind
	noSource        wire.Error   // an attach without a source
	noSourceAddress wire.Error   // or without its address
	dynamicName     func(serial uint64) string
	wildcards       bool // of names of topics

	// Messages.
	absoluteExpiry bool       // absolute-expiry-time counts
	reducesTTL     bool       // a delivery carries what is left of its time-to-live
	scheduled      bool       // a message is delivered when its annotation says
	timestamps     bool       // and that may be a timestamp
	firstAcquirer  bool       // the header says so
	hopByHop       bool       // delivery-annotations are taken off
	checksUser     bool       // a user-id must be that of the connection
	resetsCount    bool       // a publisher's delivery-count is not kept
	formats        bool       // a message-format other than 0 is kept
	noAddress      wire.State // the answer to a message without "to" at the anonymous terminus
	deadLetter     string     // the queue of dead letters by default, "" for none
	expiry         string     // the queue of what has expired by default

	// stamp says in m where it was published; nil if nothing does.
	stamp func(n *node, m *message)
	// node returns the node of that name for a link of ours in that role, or
	// why there is none.
	node func(s *Server, name string, kind nodeKind, role wire.Role) (*node, *wire.Error)
	// make returns the node of that name, which it makes if there is none.
	make func(s *Server, name string, kind nodeKind) (*node, *wire.Error)
	// relay returns the node that a message at the anonymous terminus names,
	// nil with the answer if there is none.
	relay func(s *Server, to string) (*node, wire.State)
	// grave returns the node for dead letters, nil if there is none.
	grave func(s *Server, name string) *node
	// mark says in m, a dead letter of n, where it died and why.
	mark func(n *node, m *message, reason string)
	// full is the answer to a message for which n has no room.
	full func(n *node) wire.State
	// checkOptions says which of the options mean nothing.
	checkOptions func(o *NodeOptions) error
	// bind makes the bindings of the queue of that name.
	bind func(s *Server, queue string, bindings []string) error
	// attach looks at an attach first: it returns why it is refused, and
	// whether it has been dealt with.
	attach func(l *link, a *wire.Attach) (*wire.Error, bool)
	// modified does with m, of n, what modified says, but for delivery-failed.
	modified func(n *node, m *message, l *link, state *wire.State)
	// lost does with m, of n, what it costs that a link, or its session, ended
	// before it was settled.
	lost func(n *node, m *message, link bool) (counted bool)
	// undeliverable says whether undeliverable-here makes a dead letter.
	undeliverable bool
	// rejectedCounts says whether rejected is a delivery attempt.
	rejectedCounts bool
	// order is where m is in the order of its queue, before its arrival.
	order func(n *node, m *message) uint8
	// returnsFirst says whether what consumers give back comes, in the order in
	// which they do, before what has never been delivered.
	returnsFirst func(n *node) bool
}

// dialects are the ones that Options.Dialect may name.
var dialects = map[amqpflow.Dialect]*dialect{
	amqpflow.DialectAuto: generic, amqpflow.DialectGeneric: generic,
	amqpflow.DialectArtemis: artemis, amqpflow.DialectRabbitMQ: rabbitMQ,
}

// generic tells queues and topics by capability, makes what is missing, and
// keeps to the standard.
var generic = &dialect{
	names:           address.Generic,
	properties:      wire.Map{{Key: wire.Symbol("product"), Value: containerID}},
	offered:         []wire.Symbol{capabilityRelay},
	channelMax:      65535,
	handleMax:       1<<32 - 1,
	window:          2048,
	maxDeliveries:   10,
	credit:          linkCredit,
	steals:          true,
	suspends:        true,
	trails:          true,
	echoes:          true,
	browses:         true,
	second:          true,
	untyped:         kindQueue,
	mismatch:        amqp.ErrCondNotAllowed,
	noSource:        *refusal(amqp.ErrCondInvalidField, "an attach without a source"),
	noSourceAddress: *refusal(amqp.ErrCondInvalidField, "an attach without an address"),
	dynamicName:     func(serial uint64) string { return dynamicPrefix + strconv.FormatUint(serial, 10) },
	absoluteExpiry:  true,
	reducesTTL:      true,
	scheduled:       true,
	timestamps:      true,
	firstAcquirer:   true,
	formats:         true,
	noAddress:       rejected(amqp.ErrCondPreconditionFailed, "a message without an address for the anonymous terminus"),
	node:            genericNode,
	make:            func(s *Server, name string, kind nodeKind) (*node, *wire.Error) { return s.node(name, kind) },
	relay:           genericRelay,
	grave:           genericGrave,
	mark:            func(*node, *message, string) {},
	full:            genericFull,
	checkOptions:    noRabbitOptions,
	bind:            func(*Server, string, []string) error { return nil },
	attach:          func(*link, *wire.Attach) (*wire.Error, bool) { return nil, false },
	modified:        genericModified,
	lost:            func(*node, *message, bool) bool { return false },
	order:           func(*node, *message) uint8 { return 0 },
	returnsFirst:    func(*node) bool { return false },
}

const dynamicPrefix = "amqptest.dynamic."

func genericNode(s *Server, name string, kind nodeKind, _ wire.Role) (*node, *wire.Error) {
	if s.nodes[name] == nil && strings.HasPrefix(name, dynamicPrefix) {
		return nil, refusal(amqp.ErrCondNotFound, "the dynamic node was deleted")
	}
	return s.node(name, kind)
}

func genericRelay(s *Server, to string) (*node, wire.State) {
	n, e := s.dialect.node(s, to, kindAny, wire.RoleReceiver)
	if e != nil {
		return nil, wire.State{Kind: wire.StateRejected, Error: e}
	}
	return n, stateAccepted
}

func genericGrave(s *Server, name string) *node {
	n, e := s.node(name, kindQueue)
	if e != nil {
		return nil // a topic that was made meanwhile
	}
	return n
}

// genericModified keeps what the standard lets a consumer say. Spec: 3.4.5.
func genericModified(_ *node, m *message, l *link, state *wire.State) {
	m.annotate(state.Annotations)
	m.postpone(state.Annotations)
	if state.UndeliverableHere {
		m.refusedBy = append(m.refusedBy, l)
	}
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

// arrived changes m as a broker does that has received it for n.
func (n *node) arrived(m *message) {
	d := n.srv.dialect
	if d.resetsCount {
		m.header.DeliveryCount = 0
	}
	if d.hopByHop && m.format == 0 {
		m.dropDeliveryAnnotations()
	}
	if d.stamp != nil {
		d.stamp(n, m)
	}
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
