// Package address parses amqpflow's addresses and turns them into the nodes
// and capabilities that each kind of peer understands.
package address

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind says what an address names.
type Kind uint8

const (
	// KindQueue is a node whose consumers compete for its messages.
	KindQueue Kind = iota
	// KindTopic is a node that gives every subscription a copy.
	KindTopic
	// KindRaw is taken to the wire as it stands.
	KindRaw
)

// Prefixes of the textual form.
const (
	PrefixQueue = "queue:"
	PrefixTopic = "topic:"
	PrefixRaw   = "raw:"
)

// Capabilities of a terminus by which a peer tells queues from topics.
const (
	CapabilityQueue = "queue"
	CapabilityTopic = "topic"
)

// ErrInvalid is wrapped by every error of Parse.
var ErrInvalid = errors.New("invalid address")

// ErrUnsupported is wrapped where a peer has no form for an address.
var ErrUnsupported = errors.New("unsupported by this peer")

// Address is a parsed address.
type Address struct {
	Kind Kind
	Name string
}

// Parse reads the textual form: "queue:NAME", "topic:NAME", "raw:NODE", a
// node with a leading slash, or a bare name, which is a queue.
func Parse(s string) (Address, error) {
	a := Address{Kind: KindQueue, Name: s}
	switch {
	case strings.HasPrefix(s, PrefixQueue):
		a.Name = s[len(PrefixQueue):]
	case strings.HasPrefix(s, PrefixTopic):
		a = Address{Kind: KindTopic, Name: s[len(PrefixTopic):]}
	case strings.HasPrefix(s, PrefixRaw):
		a = Address{Kind: KindRaw, Name: s[len(PrefixRaw):]}
	case strings.HasPrefix(s, "/"):
		a.Kind = KindRaw
	}
	if a.Name == "" {
		return Address{}, fmt.Errorf("%w: %q has no name", ErrInvalid, s)
	}
	if !utf8.ValidString(a.Name) {
		return Address{}, fmt.Errorf("%w: %q is not UTF-8", ErrInvalid, s)
	}
	return a, nil
}

// Node is what an address is on the wire: the address of a terminus, and the
// capability that it asks for ("" for none).
type Node struct {
	Address    string
	Capability string
}

// Same reports whether o is the same node to a peer: its address is, and its
// capability, unless one of them asks for none.
func (n Node) Same(o Node) bool {
	return n.Address == o.Address && (n.Capability == o.Capability || n.Capability == "" || o.Capability == "")
}

// Source returns the node to receive from.
func (a Address) Source(d Dialect) (Node, error) {
	if d == RabbitMQ && a.Kind == KindTopic {
		return Node{}, fmt.Errorf("%w: RabbitMQ has no topic to receive from: bind a queue to the exchange and use Queue", ErrUnsupported)
	}
	return a.node(d), nil
}

// Target returns the node to send to.
func (a Address) Target(d Dialect) (Node, error) {
	return a.node(d), nil
}

func (a Address) node(d Dialect) Node {
	switch {
	case a.Kind == KindRaw:
		return Node{Address: a.Name}
	case d == RabbitMQ && a.Kind == KindQueue:
		return Node{Address: "/queues/" + percentEncode(a.Name)}
	case d == RabbitMQ:
		return Node{Address: "/exchanges/amq.topic/" + percentEncode(a.Name)}
	case d == ServiceBus:
		return Node{Address: a.Name}
	case a.Kind == KindQueue:
		return Node{Address: a.Name, Capability: CapabilityQueue}
	default:
		return Node{Address: a.Name, Capability: CapabilityTopic}
	}
}

// percentEncode keeps only the characters that RFC 3986 calls unreserved.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			out.WriteByte(c)
		default:
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}
