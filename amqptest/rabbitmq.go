package amqptest

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// rabbitMQ is RabbitMQ 4.3.6 with its version 2 addresses.
var rabbitMQ = &dialect{
	names: address.RabbitMQ,
	properties: wire.Map{
		{Key: wire.Symbol("product"), Value: "RabbitMQ"}, {Key: wire.Symbol("version"), Value: "4.3.6"},
	},
	offered:         []wire.Symbol{"LINK_PAIR_V1_0", capabilityRelay},
	channelMax:      63,
	handleMax:       255,
	window:          400,
	idleTimeout:     time.Minute,
	maxDeliveries:   21,
	credit:          170,
	trails:          true,
	unstated:        wire.StateUnknown,
	defaultOutcome:  &wire.State{Kind: wire.StateReleased},
	ignoresTerminus: true,
	endsSession:     true,
	maxMessageSize:  16 << 20,
	untyped:         kindQueue,
	mismatch:        amqp.ErrCondInvalidField,
	noSource:        *refusal(amqp.ErrCondInvalidField, "Attach refused: source_required"),
	noSourceAddress: *refusal(amqp.ErrCondInvalidField, "Attach refused: {bad_address,undefined}"),
	dynamicName:     func(serial uint64) string { return fmt.Sprintf("/queues/amq.rabbitmq.reply-to.%d", serial) },
	firstAcquirer:   true,
	hopByHop:        true,
	checksUser:      true,
	resetsCount:     true,
	noAddress:       rejected(amqp.ErrCondPreconditionFailed, "anonymous terminus requires 'to' address to be set"),
	node:            rabbitNode,
	make:            rabbitMake,
	relay:           rabbitRelay,
	grave:           rabbitGrave,
	mark:            rabbitMark,
	full:            rabbitFull,
	checkOptions:    func(*NodeOptions) error { return nil },
	bind:            rabbitBind,
	attach:          rabbitAttach,
	modified:        rabbitModified,
	lost:            rabbitLost,
	stamp:           rabbitStamp,
	undeliverable:   true,
	rejectedCounts:  true,
	order:           rabbitOrder,
	returnsFirst:    func(n *node) bool { return n.settings.queueType == QuorumQueue },
}

const (
	rabbitQueues    = "/queues/"
	rabbitExchanges = "/exchanges/"
)

// rabbitNode finds what an address of version 2 names. Nothing is made by
// attaching but what an exchange and a key stand for.
func rabbitNode(s *Server, name string, _ nodeKind, role wire.Role) (*node, *wire.Error) {
	switch {
	case name == managementNode:
		return &node{srv: s, name: name, kind: kindManagement}, nil
	case strings.HasPrefix(name, rabbitQueues):
		queue, ok := unescaped(name[len(rabbitQueues):])
		if !ok {
			return nil, badAddress(name)
		}
		if n := s.nodes[queueName(queue)]; n != nil {
			return n, nil
		}
		return nil, refusal(amqp.ErrCondNotFound, fmt.Sprintf("no queue '%s' in vhost '/'", queue))
	case strings.HasPrefix(name, rabbitExchanges) && role == wire.RoleReceiver:
		return s.exchangeNode(name)
	default:
		return nil, refusal(amqp.ErrCondInvalidField,
			fmt.Sprintf("Attach refused: {amqp_address_v1_not_permitted,{utf8,<<%q>>}}", name))
	}
}

func badAddress(name string) *wire.Error {
	return refusal(amqp.ErrCondInvalidField, fmt.Sprintf("Attach refused: {bad_address_string,<<%q>>}", name))
}

// queueName is the one form in which a queue is among the server's nodes.
func queueName(queue string) string {
	n, err := address.Address{Kind: address.KindQueue, Name: queue}.Target(address.RabbitMQ)
	if err != nil {
		return "" // cannot be: a queue has a name in every dialect
	}
	return n.Address
}

// unescaped decodes one segment of an address.
func unescaped(segment string) (string, bool) {
	if segment == "" || strings.Contains(segment, "/") {
		return "", false
	}
	s, err := url.PathUnescape(segment)
	return s, err == nil && utf8.ValidString(s)
}

// rabbitMake makes the queue, which only the server's own methods may.
func rabbitMake(s *Server, name string, kind nodeKind) (*node, *wire.Error) {
	n, e := rabbitNode(s, name, kind, wire.RoleReceiver)
	if e == nil || e.Condition != wire.Symbol(amqp.ErrCondNotFound) || !strings.HasPrefix(name, rabbitQueues) {
		return n, e
	}
	queue, _ := unescaped(name[len(rabbitQueues):])
	return s.makeNode(queueName(queue), kindQueue), nil
}

func rabbitRelay(s *Server, to string) (*node, wire.State) {
	n, e := rabbitNode(s, to, kindAny, wire.RoleReceiver)
	switch {
	case e == nil && n.kind != kindManagement:
		return n, stateAccepted
	case e == nil || e.Condition != wire.Symbol(amqp.ErrCondNotFound):
		return nil, rejected(amqp.ErrCondPreconditionFailed, "bad 'to' address string: "+to)
	case strings.HasPrefix(to, rabbitQueues): // the default exchange has no such key
		return nil, wire.State{Kind: wire.StateReleased}
	default:
		return nil, wire.State{Kind: wire.StateRejected, Error: e}
	}
}

func rabbitGrave(s *Server, name string) *node {
	n, e := rabbitNode(s, name, kindAny, wire.RoleReceiver)
	if e != nil || n.kind == kindManagement {
		return nil
	}
	return n
}

// rabbitMark annotates a dead letter.
func rabbitMark(n *node, m *message, reason string) {
	queue, _ := unescaped(strings.TrimPrefix(n.name, rabbitQueues))
	now := time.Now()
	death := wire.Map{
		{Key: wire.Symbol("queue"), Value: queue}, {Key: wire.Symbol("reason"), Value: wire.Symbol(reason)},
		{Key: wire.Symbol("count"), Value: uint64(1)}, {Key: wire.Symbol("exchange"), Value: ""},
		{Key: wire.Symbol("first-time"), Value: now}, {Key: wire.Symbol("last-time"), Value: now},
		{Key: wire.Symbol("routing-keys"), Value: wire.List{queue}},
	}
	marks := wire.Map{}
	for _, which := range []string{"first", "last"} {
		for what, v := range map[string]string{"exchange": "", "queue": queue, "reason": reason} {
			marks = append(marks, wire.Entry{Key: wire.Symbol("x-" + which + "-death-" + what), Value: v})
		}
	}
	slices.SortFunc(marks, func(a, b wire.Entry) int {
		return strings.Compare(string(a.Key.(wire.Symbol)), string(b.Key.(wire.Symbol)))
	})
	marks = append(marks, wire.Entry{Key: wire.Symbol("x-opt-deaths"), Value: wire.List{death}})
	if count := m.header.DeliveryCount; count > 0 {
		for _, key := range []wire.Symbol{"x-acquired-count", "x-delivery-count"} {
			marks = append(marks, wire.Entry{Key: key, Value: uint64(count)})
		}
	}
	m.annotate(marks)
}

func rabbitFull(n *node) wire.State {
	queue, _ := unescaped(strings.TrimPrefix(n.name, rabbitQueues))
	state := rejected(amqp.ErrCondResourceLimitExceeded, fmt.Sprintf("queue '%s' exceeded maximum length", queue))
	state.Error.Info = wire.Map{{Key: wire.Symbol("queue"), Value: queue}, {Key: wire.Symbol("reason"), Value: "maxlen"}}
	return state
}

// rabbitAttach refuses what RabbitMQ refuses whatever the address is.
func rabbitAttach(l *link, a *wire.Attach) (*wire.Error, bool) {
	switch {
	case a.RcvSettleMode == rcvSecond:
		return refusal(amqp.ErrCondNotImplemented, "rcv-settle-mode second not supported"), false
	case l.role == wire.RoleReceiver && a.Target == nil && a.Coordinator == nil:
		l.ses.end(refusal(amqp.ErrCondInternalError, "function_clause"))
		return nil, true
	case l.role == wire.RoleReceiver && a.Target != nil && a.Target.Dynamic:
		return refusal(amqp.ErrCondNotImplemented, "Dynamic target not supported"), false
	case l.role == wire.RoleSender && a.Source != nil && a.Source.Dynamic && !isVolatile(a):
		return refusal(amqp.ErrCondNotImplemented, "Dynamic source not supported"), false
	case isManagement(a) && a.Properties.Get(wire.Symbol("paired")) != true:
		return refusal(amqp.ErrCondInvalidField, "Attach refused: {amqp_address_v1_not_permitted,{utf8,<<\"/management\">>}}"), false
	case l.role == wire.RoleSender && isManagement(a):
		l.sndMode = sndSettled
	}
	return nil, false
}

// isVolatile says whether a asks for RabbitMQ's own kind of dynamic source.
func isVolatile(a *wire.Attach) bool {
	return a.SndSettleMode == sndSettled && a.Source.ExpiryPolicy == wire.ExpireLinkDetach &&
		slices.Contains(a.Source.Capabilities, "rabbitmq:volatile-queue")
}

// mayBe says whether the user-id of a message, if there is one, is that of its
// connection. Spec: 3.2.4.
func (c *conn) mayBe(sections *wire.Sections) bool {
	if c.user == "" || sections.Properties == nil {
		return true
	}
	value, ok := wire.LookupProperty(sections.Properties, wire.PropUserID)
	if !ok {
		return true
	}
	user, _ := wire.RawBytes(value)
	return string(user) == c.user
}

// rabbitModified keeps annotations, and the time in them, in quorum queues.
func rabbitModified(n *node, m *message, l *link, state *wire.State) {
	for _, e := range state.Annotations {
		if key, _ := e.Key.(wire.Symbol); !strings.HasPrefix(string(key), "x-") {
			if !state.DeliveryFailed {
				m.header.DeliveryCount++
			}
			l.ses.end(refusal(amqp.ErrCondInternalError, "function_clause"))
			return
		}
	}
	if n.settings.queueType == QuorumQueue {
		m.annotate(state.Annotations)
		m.postpone(state.Annotations)
	}
}

// rabbitStamp notes the exchange and the routing key.
func rabbitStamp(n *node, m *message) {
	exchange, key := "", n.key
	if n.kind == kindExchange {
		exchange = n.exchange.name
	} else {
		key, _ = unescaped(strings.TrimPrefix(n.name, rabbitQueues))
	}
	m.annotate(wire.Map{
		{Key: wire.Symbol("x-exchange"), Value: exchange}, {Key: wire.Symbol("x-routing-key"), Value: key},
	})
}

// rabbitLost counts an attempt, which a quorum queue does for the end of a
// session, a classic one for that of a link, too.
func rabbitLost(n *node, m *message, link bool) bool {
	if link && n.settings.queueType == QuorumQueue {
		return false
	}
	m.header.DeliveryCount++
	return true
}

// rabbitOrder is by priority in quorum queues.
func rabbitOrder(n *node, m *message) uint8 {
	if n.settings.queueType == QuorumQueue {
		return math.MaxUint8 - m.header.Priority
	}
	return 0
}
