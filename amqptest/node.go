package amqptest

import (
	"slices"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// node is what an address names: a queue, for whose messages consumers
// compete, or a topic, of which each subscription has a queue of its own. It
// is guarded by the server's mutex.
type node struct {
	srv    *Server
	name   string // on the wire
	kind   nodeKind
	queues []*queue // a queue's one, a topic's subscriptions
	links  []*link  // in both directions

	owner    *link    // made it by a dynamic terminus; nil for every other
	lifetime lifetime // of one that has an owner

	arguments map[string]any // of a queue that was declared over the management node
	exchange  *exchange      // of an exchange
	key       string         // its routing key

	settings nodeSettings
	isGrave  bool    // dead letters of other nodes come here
	thirsty  []*link // of publishers: they wait for credit

	dead        []*message
	settlements []Settlement
}

type nodeKind uint8

const (
	kindAny nodeKind = iota // of an attach that does not say; no node has it
	kindQueue
	kindTopic
	kindAnonymous // each message says where it goes
	kindExchange  // of RabbitMQ, with a routing key
	kindManagement
)

func (k nodeKind) String() string {
	return [...]string{"node", "queue", "topic", "anonymous terminus", "exchange", "management node"}[k]
}

// node returns the node of that name, which it makes if there is none. It
// fails if there is one of another kind.
func (s *Server) node(name string, kind nodeKind) (*node, *wire.Error) {
	n := s.nodes[name]
	switch {
	case n == nil:
		return s.makeNode(name, kind), nil
	case kind != kindAny && kind != n.kind:
		return nil, refusal(s.dialect.mismatch, "the node is a "+n.kind.String())
	default:
		return n, nil
	}
}

func (s *Server) makeNode(name string, kind nodeKind) *node {
	if kind == kindAny {
		kind = s.dialect.untyped
	}
	n := &node{srv: s, name: name, kind: kind, settings: s.settings(QuorumQueue)}
	if kind == kindQueue {
		n.addQueue()
	}
	s.nodes[name] = n
	if kind == kindTopic && s.dialect.wildcards && isPattern(name) {
		s.patterns[name] = n
	}
	return n
}

// addQueue makes a queue of n: its only one, or a subscription's.
func (n *node) addQueue() *queue {
	q := &queue{srv: n.srv, node: n}
	n.queues = append(n.queues, q)
	return q
}

// source returns the queue that a consumer attached to n takes from.
func (n *node) source() *queue {
	if n.kind == kindQueue {
		return n.queues[0]
	}
	return n.addQueue()
}

// publish stores what a publisher has sent, and says what it is answered.
func (n *node) publish(m *message) wire.State {
	if n.settings.maxLength > 0 {
		if state := n.admit(); state.Kind != wire.StateAccepted {
			return state
		}
	}
	if n.kind == kindExchange {
		return n.route(m)
	}
	n.store(m)
	return stateAccepted
}

// store puts m in every queue of n. A topic without subscriptions drops it.
func (n *node) store(m *message) {
	if ttl := n.settings.ttl; ttl > 0 {
		if at := time.Now().Add(ttl).UnixNano(); m.expires == 0 || at < m.expires {
			m.expires = at
		}
	}
	if n.kind == kindQueue {
		n.queues[0].put(m)
		return
	}
	if n.kind == kindExchange {
		for _, to := range n.exchange.bound(n.key) {
			c := *m
			to.store(&c)
		}
	}
	for _, q := range n.queues {
		c := *m
		q.put(&c)
	}
	if n.srv.dialect.wildcards {
		n.storeByPattern(m)
	}
}

var stateAccepted = wire.State{Kind: wire.StateAccepted}

// len is how many messages wait.
func (n *node) len() int {
	sum := 0
	for _, q := range n.queues {
		sum += q.len() + len(q.later)
	}
	return sum
}

// waiting returns what waits, one queue after the other.
func (n *node) waiting() []*message {
	if n.kind == kindQueue {
		return n.queues[0].all()
	}
	var all []*message
	for _, q := range n.queues {
		all = append(all, q.all()...)
	}
	return all
}

// leave takes l off the node. A subscription's queue goes with its link.
func (n *node) leave(l *link) {
	if i := slices.Index(n.links, l); i >= 0 {
		n.links = slices.Delete(n.links, i, i+1)
	}
	if q := l.queue; q != nil {
		q.remove(l)
		if n.kind == kindTopic {
			n.queues = slices.DeleteFunc(n.queues, func(o *queue) bool { return o == q })
		}
	}
	if n.kind == kindExchange && len(n.links) == 0 {
		delete(n.srv.nodes, n.name)
	}
	n.expire(l)
}
