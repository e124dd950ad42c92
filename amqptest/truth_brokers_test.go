package amqptest_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// attempts is how often a queue with queueOptions.attempts delivers a message,
// as the address settings of the Artemis that tests run against have it.
const attempts = 3

// broker is one at url; what was made on it is deleted when t ends.
func broker(t *testing.T, name string, dialect amqpflow.Dialect, url string) *peer {
	t.Helper()
	p := &peer{name: name, dialect: dialect, url: url, real: true}
	if dialect == amqpflow.DialectRabbitMQ {
		p.manage = newRabbitManager(t, p)
	} else {
		p.manage = &artemisManager{p: p, r: openRaw(t, p)}
	}
	return p
}

// artemisManager makes queues by attaching to them, and deletes them over the
// management address.
type artemisManager struct {
	mu sync.Mutex
	p  *peer
	r  *rawClient
}

func (m *artemisManager) create(t *testing.T, n node, _ queueOptions) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.r.t = t
	h := m.r.sender(n)
	m.r.send(&wire.Detach{Handle: h, Closed: true})
	await[wire.Detach](m.r)
}

func (m *artemisManager) remove(t *testing.T, n node) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.r.t = t
	h := m.r.sender(node{address: "activemq.management"})
	m.operate(h, "destroyQueue", n.name, true, true)
	m.operate(h, "deleteAddress", n.name, true) // one that only topics or nobody had
	m.r.send(&wire.Detach{Handle: h, Closed: true})
	await[wire.Detach](m.r)
}

// operate asks for one operation, and does not hear whether there was anything
// to do.
func (m *artemisManager) operate(handle uint32, operation string, arguments ...any) {
	body, err := json.Marshal(arguments)
	require.NoError(m.r.t, err)
	payload, err := (&amqp.Message{
		ApplicationProperties: map[string]any{"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation},
		Value:                 string(body),
	}).MarshalBinary()
	require.NoError(m.r.t, err)
	m.r.transfer(handle, payload)
	await[wire.Disposition](m.r)
}

// rabbitManager makes and deletes queues over the management node.
type rabbitManager struct {
	mu              sync.Mutex
	r               *rawClient
	requests, reply uint32 // handles
}

func newRabbitManager(t *testing.T, p *peer) *rabbitManager {
	t.Helper()
	m := &rabbitManager{r: openRaw(t, p)}
	const address, name = "/management", "truth-management"
	paired := wire.Map{{Key: wire.Symbol("paired"), Value: true}}
	in, out := m.r.attach(wire.RoleReceiver), m.r.attach(wire.RoleSender)
	for _, a := range []*wire.Attach{in, out} {
		a.Name, a.Properties = name, paired
		a.Source.Address, a.Target.Address = address, address
	}
	out.SndSettleMode = wire.SndSettled
	m.r.send(in)
	await[wire.Attach](m.r)
	m.r.send(out, m.r.credit(in.Handle, 1_000_000))
	await[wire.Flow](m.r)
	m.requests, m.reply = out.Handle, in.Handle
	return m
}

func (m *rabbitManager) create(t *testing.T, n node, o queueOptions) {
	t.Helper()
	arguments := map[string]any{"x-queue-type": "quorum"}
	if o.classic {
		arguments["x-queue-type"] = "classic"
	}
	if o.dead {
		dead := deadQueue(n)
		m.request(t, "PUT", dead.address, map[string]any{"durable": true, "arguments": map[string]any{"x-queue-type": "quorum"}})
		t.Cleanup(func() { m.remove(t, dead) })
		arguments["x-dead-letter-exchange"], arguments["x-dead-letter-routing-key"] = "", dead.name
	}
	if o.attempts > 0 {
		arguments["x-delivery-limit"] = int64(o.attempts - 1)
	}
	if o.max > 0 {
		arguments["x-max-length"], arguments["x-overflow"] = int64(o.max), "reject-publish"
	}
	if o.drop {
		arguments["x-overflow"] = "drop-head"
	}
	m.request(t, "PUT", n.address, map[string]any{"durable": true, "arguments": arguments})
	if exchange, key, bound := strings.Cut(o.bind, "/"); bound {
		m.request(t, "POST", "/bindings", map[string]any{
			"source": exchange, "destination_queue": n.name, "binding_key": key, "arguments": map[string]any{},
		})
	}
}

// deadQueue is where the dead letters of n go where a queue has a queue of its
// own for them.
func deadQueue(n node) node {
	return node{name: n.name + "-dead", address: n.address + "-dead", caps: n.caps}
}

func (m *rabbitManager) remove(t *testing.T, n node) {
	t.Helper()
	m.request(t, "DELETE", n.address, amqp.Null{})
}

func (m *rabbitManager) request(t *testing.T, method, path string, body any) {
	t.Helper()
	payload, err := (&amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: method, To: &path, Subject: &method, ReplyTo: new("$me")},
		Value:      body,
	}).MarshalBinary()
	require.NoError(t, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.r.t = t
	m.r.fragment(wire.Transfer{
		Handle: m.requests, DeliveryID: wire.Some(m.r.outgoing), DeliveryTag: []byte("t"), MessageFormat: wire.Some(0), Settled: true,
	}, payload)
	answer := await[wire.Transfer](m.r)
	if !answer.Settled {
		m.r.settle(accepted, answer)
	}
	var a amqp.Message
	require.NoError(t, a.UnmarshalBinary(answer.Payload))
	require.True(t, strings.HasPrefix(*a.Properties.Subject, "2"), "%s %s: %v", method, path, a.Value)
}

var (
	accepted = wire.State{Kind: wire.StateAccepted}
	rejected = wire.State{Kind: wire.StateRejected}
	released = wire.State{Kind: wire.StateReleased}
	modified = wire.State{Kind: wire.StateModified}
	failed   = wire.State{Kind: wire.StateModified, DeliveryFailed: true}
)
