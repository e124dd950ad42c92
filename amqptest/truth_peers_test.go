package amqptest_test

import (
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// peer is a broker that behaviours are looked at on.
type peer struct {
	name    string
	dialect amqpflow.Dialect
	url     string // with a user and a password that it lets in
	real    bool
	server  *amqptest.Server // of one that is not real
	manage  manager
}

// manager makes and deletes queues.
type manager interface {
	create(t *testing.T, n node, o queueOptions)
	remove(t *testing.T, n node)
}

// queueOptions says what is special about a queue.
type queueOptions struct {
	attempts int    // then it is dead-lettered
	dead     bool   // keeps what is rejected
	max      int    // messages; more are rejected
	block    bool   // or get no credit
	drop     bool   // or push out the first
	expires  bool   // for messages with a time to live
	classic  bool   // RabbitMQ's other type of queue
	bind     string // EXCHANGE/KEY of RabbitMQ
}

// node is a queue of a peer as it is called on the wire.
type node struct {
	name    string
	address string
	caps    []string
	expires bool // its graves are those of expired messages
}

func (n node) symbols() []wire.Symbol {
	var s []wire.Symbol
	for _, c := range n.caps {
		s = append(s, wire.Symbol(c))
	}
	return s
}

func (n node) source() *wire.Source {
	return &wire.Source{Address: n.address, HasAddress: true, Capabilities: n.symbols()}
}

func (n node) target() *wire.Target {
	return &wire.Target{Address: n.address, HasAddress: true, Capabilities: n.symbols()}
}

var counter atomic.Uint64

// unique is a name that nobody else uses.
func unique(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, os.Getpid(), counter.Add(1))
}

// queueNode is what a queue of that name is called by p.
func (p *peer) queueNode(name string) node {
	if p.dialect == amqpflow.DialectRabbitMQ {
		return node{name: name, address: "/queues/" + url.PathEscape(name)}
	}
	return node{name: name, address: name, caps: []string{"queue"}}
}

// queue makes an empty queue that is deleted when the test ends.
func (p *peer) queue(t *testing.T, o queueOptions) node {
	t.Helper()
	return p.queueNamed(t, unique("truth"), o)
}

func (p *peer) queueNamed(t *testing.T, name string, o queueOptions) node {
	t.Helper()
	n := p.queueNode(name)
	n.expires = o.expires
	p.manage.create(t, n, o)
	t.Cleanup(func() { p.manage.remove(t, n) })
	return n
}

// topic is one that nobody subscribes to.
func (p *peer) topic(t *testing.T) node {
	t.Helper()
	name := unique("truth-topic")
	if p.dialect == amqpflow.DialectRabbitMQ {
		return node{name: name, address: "/exchanges/amq.topic/" + name}
	}
	n := node{name: name, address: name, caps: []string{"topic"}}
	t.Cleanup(func() { p.manage.remove(t, n) })
	return n
}

const (
	fakeUser     = "truth"
	fakePassword = "p@ss"
)

// fake is a server of its own for each behaviour.
func fake(t *testing.T, name string, dialect amqpflow.Dialect, breaks bool) *peer {
	t.Helper()
	s := amqptest.NewServer(&amqptest.Options{Dialect: dialect, Users: map[string]string{fakeUser: fakePassword}})
	t.Cleanup(func() {
		if err := s.Close(); !breaks {
			assert.NoError(t, err)
		}
	})
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(fakeUser, fakePassword)
	p := &peer{name: name, dialect: dialect, url: u.String(), server: s}
	p.manage = fakeManager{p}
	return p
}

type fakeManager struct{ p *peer }

func (m fakeManager) create(t *testing.T, n node, o queueOptions) {
	t.Helper()
	options := amqptest.NodeOptions{MaxDeliveries: o.attempts, MaxLength: o.max}
	if o.dead && m.p.dialect != amqpflow.DialectArtemis { // which has queues for those of all
		options.DeadLetter = amqpflow.Queue(deadQueue(n).name)
	}
	switch {
	case o.block:
		options.WhenFull = amqptest.WithholdWhenFull
	case o.drop:
		options.WhenFull = amqptest.DropOldestWhenFull
	}
	if o.classic {
		options.QueueType = amqptest.ClassicQueue
	}
	if o.bind != "" {
		options.Bind = []string{o.bind}
	}
	require.NoError(t, m.p.server.Declare(amqpflow.Queue(n.name), &options))
}

func (fakeManager) remove(*testing.T, node) {}

// limited is a queue with dead letters that delivers a message 3 times.
func (p *peer) limited(t *testing.T) node {
	t.Helper()
	name := unique("truth")
	if p.dialect == amqpflow.DialectArtemis {
		name = "retry3." + name // by the address settings of the broker
	}
	return p.queueNamed(t, name, queueOptions{attempts: attempts, dead: true})
}

// full is a queue that takes fewer than 40 of the messages returned, and says
// so by an outcome or by its credit.
func (p *peer) full(t *testing.T, block bool) (node, func() *amqp.Message) {
	t.Helper()
	name, size := unique("truth"), 10
	if p.dialect == amqpflow.DialectArtemis {
		size = 80 << 10 // a larger one does not count in Artemis
		if name = "full-fail." + name; block {
			name = "full-block." + unique("truth")
		}
	}
	n := p.queueNamed(t, name, queueOptions{max: 4, block: block})
	return n, func() *amqp.Message { return amqp.NewMessage(make([]byte, size)) }
}

// graveOf is where dead letters of n go; on a real Artemis, where one queue has
// those of all tests, by a property that put sets.
func (p *peer) graveOf(n node) *wire.Source {
	if p.dialect != amqpflow.DialectArtemis {
		return deadQueue(n).source()
	}
	s := p.queueNode("DLQ").source()
	if n.expires {
		s = p.queueNode("ExpiryQueue").source()
	}
	if !p.real {
		return s
	}
	const selector = "apache.org:selector-filter:string"
	s.Filter = wire.Map{{Key: wire.Symbol(selector), Value: wire.Described{
		Descriptor: wire.Symbol(selector), Value: owner + " = '" + n.name + "'",
	}}}
	return s
}

// owner is the application property with the name of a message's queue.
const owner = "truth"
