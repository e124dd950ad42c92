package amqptest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// exchange is one of RabbitMQ: it keeps nothing, and passes what is published
// to the queues that are bound to it.
type exchange struct {
	srv      *Server
	name     string
	kind     string // "direct", "topic", "fanout" or "headers"
	bindings []binding
}

// binding is from an exchange to a queue.
type binding struct {
	queue string // its name among the server's nodes
	key   string
}

// exchangesOf are those that a broker has from the start.
func exchangesOf(s *Server) map[string]*exchange {
	r := map[string]*exchange{}
	for _, kind := range []string{"direct", "topic", "fanout", "headers"} {
		r["amq."+kind] = &exchange{srv: s, name: "amq." + kind, kind: kind}
	}
	return r
}

// bound returns the queues that what is published with that key goes to.
func (x *exchange) bound(key string) []*node {
	var r []*node
	for _, b := range x.bindings {
		n := x.srv.nodes[b.queue]
		if n != nil && x.takes(b.key, key) && !slices.Contains(r, n) {
			r = append(r, n)
		}
	}
	return r
}

// takes says whether a binding takes a key. Bindings of a headers exchange
// have no arguments here, which takes everything.
func (x *exchange) takes(binding, key string) bool {
	switch x.kind {
	case "direct":
		return binding == key
	case "topic":
		return matches(binding, key)
	default:
		return true
	}
}

// bind adds a binding, once.
func (x *exchange) bind(b binding) {
	if !slices.Contains(x.bindings, b) {
		x.bindings = append(x.bindings, b)
	}
}

// nodesAt returns what has the messages of that name: the node, or the queues
// that are bound to an exchange.
func (s *Server) nodesAt(name string) []*node {
	if s.exchanges != nil && strings.HasPrefix(name, rabbitExchanges) {
		n, e := s.parseExchange(name)
		if e != nil {
			return nil
		}
		return n.exchange.bound(n.key)
	}
	if s.exchanges != nil && strings.HasPrefix(name, rabbitQueues) {
		if queue, ok := unescaped(name[len(rabbitQueues):]); ok {
			name = queueName(queue)
		}
	}
	if n := s.nodes[name]; n != nil {
		return []*node{n}
	}
	return nil
}

// exchangeNode returns the node of an exchange and a key, which it makes if
// there is none.
func (s *Server) exchangeNode(name string) (*node, *wire.Error) {
	if n := s.nodes[name]; n != nil {
		return n, nil
	}
	n, e := s.parseExchange(name)
	if e == nil {
		s.nodes[name] = n
	}
	return n, e
}

// parseExchange reads "/exchanges/NAME" or "/exchanges/NAME/KEY".
func (s *Server) parseExchange(name string) (*node, *wire.Error) {
	first, second, hasKey := strings.Cut(name[len(rabbitExchanges):], "/")
	exchange, ok := unescaped(first)
	key := ""
	if ok && hasKey && second != "" {
		key, ok = unescaped(second)
	}
	if !ok {
		return nil, badAddress(name)
	}
	x := s.exchanges[exchange]
	if x == nil {
		return nil, refusal(amqp.ErrCondNotFound, fmt.Sprintf("no exchange '%s' in vhost '/'", exchange))
	}
	return &node{srv: s, name: name, kind: kindExchange, exchange: x, key: key}, nil
}

// route publishes m to the queues that are bound: released if there are none,
// rejected if one of them rejects it.
func (n *node) route(m *message) wire.State {
	answer := wire.State{Kind: wire.StateReleased}
	for _, to := range n.exchange.bound(n.key) {
		c := *m
		if state := to.publish(&c); answer.Kind != wire.StateRejected {
			answer = state
		}
	}
	return answer
}

// rabbitBind makes bindings, each "EXCHANGE/KEY".
func rabbitBind(s *Server, queue string, bindings []string) error {
	for _, b := range bindings {
		name, key, ok := strings.Cut(b, "/")
		x := s.exchanges[name]
		switch {
		case !ok:
			return fmt.Errorf("%q is not EXCHANGE/KEY", b)
		case x == nil:
			return fmt.Errorf("there is no exchange %q", name)
		}
		x.bind(binding{queue: queue, key: key})
	}
	return nil
}
