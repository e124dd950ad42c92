package amqptest

import (
	"fmt"
	"math"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	artemisDeadLetter = "DLQ"
	artemisExpiry     = "ExpiryQueue"
)

// artemis is ActiveMQ Artemis 2.44.0 with the address settings of a broker
// that was just made.
var artemis = &dialect{
	names: address.Artemis,
	properties: wire.Map{
		{Key: wire.Symbol("product"), Value: "apache-activemq-artemis"}, {Key: wire.Symbol("version"), Value: "2.44.0"},
	},
	offered:         []wire.Symbol{"sole-connection-for-container", "DELAYED_DELIVERY", "SHARED-SUBS", capabilityRelay},
	channelMax:      65535,
	handleMax:       65535,
	window:          math.MaxInt32,
	idleTimeout:     time.Minute,
	maxDeliveries:   10,
	credit:          1000,
	muteLinks:       true,
	unstated:        wire.StateAccepted,
	browses:         true,
	untyped:         kindTopic,
	mismatch:        amqp.ErrCondIllegalState,
	noSource:        *refusal(amqp.ErrCondNotFound, "Unknown subscription link"),
	noSourceAddress: *refusal(amqp.ErrCondInternalError, "AMQ119005: error creating consumer"),
	dynamicName:     artemisDynamicName,
	wildcards:       true,
	absoluteExpiry:  true,
	scheduled:       true,
	hopByHop:        true,
	formats:         true,
	noAddress:       rejected("failed", "Missing 'to' field for message sent to an anonymous producer"),
	deadLetter:      artemisDeadLetter,
	expiry:          artemisExpiry,
	node:            artemisNode,
	make:            func(s *Server, name string, kind nodeKind) (*node, *wire.Error) { return s.node(name, kind) },
	relay:           genericRelay,
	grave:           genericGrave,
	mark:            artemisMark,
	full:            genericFull,
	checkOptions:    noRabbitOptions,
	bind:            func(*Server, string, []string) error { return nil },
	attach:          artemisAttach,
	modified:        artemisModified,
	lost:            func(*node, *message, bool) bool { return false },
	order:           byPriority,
	returnsFirst:    func(*node) bool { return false },
}

// artemisDynamicName looks like the random UUID that Artemis makes.
func artemisDynamicName(serial uint64) string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", serial)
}

// artemisNode lets a publisher attach to a node of the other kind: what it
// sends reaches no queue there.
func artemisNode(s *Server, name string, kind nodeKind, role wire.Role) (*node, *wire.Error) {
	n, e := s.node(name, kind)
	if e != nil && role == wire.RoleReceiver {
		return &node{srv: s, name: name, kind: kindTopic}, nil
	}
	return n, e
}

// artemisAttach closes the connection on a target that is null.
func artemisAttach(l *link, a *wire.Attach) (*wire.Error, bool) {
	if l.role == wire.RoleReceiver && a.Target == nil && a.Coordinator == nil {
		l.ses.conn.shut(refusal(amqp.ErrCondInternalError, "Unrecoverable error: the target is null"))
		return nil, true
	}
	return nil, false
}

// artemisModified looks neither at annotations nor at the times in them.
func artemisModified(_ *node, m *message, l *link, state *wire.State) {
	if state.UndeliverableHere {
		m.refusedBy = append(m.refusedBy, l)
	}
}

// artemisMark annotates a dead letter, which is a message of its own.
func artemisMark(n *node, m *message, reason string) {
	m.header.DeliveryCount = 0
	marks := wire.Map{
		{Key: wire.Symbol("x-opt-ORIG-ADDRESS"), Value: n.name},
		{Key: wire.Symbol("x-opt-ORIG-QUEUE"), Value: n.name},
		{Key: wire.Symbol("x-opt-ORIG-MESSAGE-ID"), Value: int64(m.seq & math.MaxInt64)},
	}
	if reason == diedExpired {
		marks = append(marks, wire.Entry{Key: wire.Symbol("x-opt-ACTUAL-EXPIRY"), Value: time.Now().UnixMilli()})
	}
	m.annotate(marks)
}

// byPriority delivers what is more urgent first.
func byPriority(_ *node, m *message) uint8 { return math.MaxUint8 - m.header.Priority }
