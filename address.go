package amqpflow

import "github.com/amqpflow/amqpflow/internal/address"

// Address names a node of the peer. It is a string, so that it can stand in a
// configuration file: "queue:orders", "topic:prices", "raw:/queues/orders". A
// bare name is a queue; a leading slash is taken verbatim, like "raw:".
//
// What an address is on the wire depends on the peer, which is known once the
// connection is open: Queue("orders") is "orders" with the terminus capability
// "queue" for Artemis and any generic peer, and "/queues/orders" for RabbitMQ.
//
// Spec: 3.5.3 and 3.5.4 (source and target), 3.5.10 (terminus capabilities).
type Address string

// Queue is the address of a queue: its consumers compete for its messages.
func Queue(name string) Address { return Address(address.PrefixQueue + name) }

// Topic is the address of a topic: each of its subscriptions gets a copy.
// RabbitMQ has none to receive from (ErrUnsupported): bind a queue to an
// exchange there and use Queue; what is published goes to the exchange
// amq.topic.
func Topic(name string) Address { return Address(address.PrefixTopic + name) }

// Raw is the address of a node exactly as it goes on the wire, without any
// capability.
func Raw(node string) Address { return Address(address.PrefixRaw + node) }

// Dialect is the way in which a kind of peer names its nodes.
type Dialect = address.Dialect

// The dialects. DialectAuto, the zero value, lets the peer's OPEN and its
// host's name decide; a peer that is not known is generic.
const (
	DialectAuto       = address.Auto
	DialectGeneric    = address.Generic
	DialectArtemis    = address.Artemis
	DialectRabbitMQ   = address.RabbitMQ
	DialectServiceBus = address.ServiceBus
)

func (a Address) parse() (address.Address, error) {
	return address.Parse(string(a))
}
