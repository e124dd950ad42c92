package amqptest_test

import (
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// attachReceiver says how the attach of a receiver to n ends.
func attachReceiver(t *testing.T, p *peer, n node, o amqp.ReceiverOptions) string {
	t.Helper()
	o.SourceCapabilities, o.Credit = append(o.SourceCapabilities, n.caps...), -1
	_, err := session(t, p).NewReceiver(patient(t), n.address, &o)
	if err == nil {
		return "attached"
	}
	return why(err)
}

// attachSender says how the attach of a sender to n ends.
func attachSender(t *testing.T, p *peer, n node) string {
	t.Helper()
	_, err := session(t, p).NewSender(patient(t), n.address, &amqp.SenderOptions{TargetCapabilities: n.caps})
	if err == nil {
		return "attached"
	}
	return why(err)
}

// removed makes p forget n, which attaching may have made.
func removed(t *testing.T, p *peer, n node) node {
	if p.dialect != amqpflow.DialectRabbitMQ {
		t.Cleanup(func() { p.manage.remove(t, n) })
	}
	return n
}

func missing(t *testing.T, p *peer) node {
	n := p.queueNode(unique("truth-missing"))
	n.caps = nil
	return removed(t, p, n)
}

func receiverToAQueue(t *testing.T, p *peer) string {
	return attachReceiver(t, p, p.queue(t, queueOptions{}), amqp.ReceiverOptions{})
}

func senderToAQueue(t *testing.T, p *peer) string {
	return attachSender(t, p, p.queue(t, queueOptions{}))
}

func receiverWithoutCapability(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	n.caps = nil
	return attachReceiver(t, p, n, amqp.ReceiverOptions{})
}

func senderWithoutCapability(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	n.caps = nil
	return attachSender(t, p, n)
}

func receiverToNothing(t *testing.T, p *peer) string {
	return attachReceiver(t, p, missing(t, p), amqp.ReceiverOptions{})
}

func senderToNothing(t *testing.T, p *peer) string { return attachSender(t, p, missing(t, p)) }

func receiverToNothingWithCapability(t *testing.T, p *peer) string {
	n := missing(t, p)
	n.caps = []string{"queue"}
	return attachReceiver(t, p, n, amqp.ReceiverOptions{})
}

func senderToNothingWithCapability(t *testing.T, p *peer) string {
	n := missing(t, p)
	n.caps = []string{"queue"}
	return attachSender(t, p, n)
}

// refusedSessionLives attaches where it is refused and then where it is not.
func refusedSessionLives(t *testing.T, p *peer) string {
	n, r := p.queue(t, queueOptions{}), openRaw(t, p)
	refused, a := r.attach(wire.RoleReceiver), r.attach(wire.RoleReceiver)
	r.send(refused)
	first := r.attached(refused)
	a.Source = n.source()
	r.send(&wire.Detach{Handle: refused.Handle, Closed: true}, a)
	return first + ", then " + r.attached(a)
}

// attachedAs attaches to no address in that role, as change leaves the attach.
func attachedAs(t *testing.T, p *peer, role wire.Role, change func(*wire.Attach)) string {
	r := openRaw(t, p)
	a := r.attach(role)
	change(a)
	r.send(a)
	return r.attached(a)
}

func nullSource(t *testing.T, p *peer) string {
	return attachedAs(t, p, wire.RoleReceiver, func(a *wire.Attach) { a.Source = nil })
}

func noSourceAddress(t *testing.T, p *peer) string {
	return attachedAs(t, p, wire.RoleReceiver, func(*wire.Attach) {})
}

func nullTarget(t *testing.T, p *peer) string {
	return attachedAs(t, p, wire.RoleSender, func(a *wire.Attach) { a.Target = nil })
}

func noTargetAddress(t *testing.T, p *peer) string {
	return attachedAs(t, p, wire.RoleSender, func(*wire.Attach) {})
}

func coordinator(t *testing.T, p *peer) string {
	return attachedAs(t, p, wire.RoleSender, func(a *wire.Attach) { a.Target, a.Coordinator = nil, &wire.Coordinator{} })
}

func durableSubscription(t *testing.T, p *peer) string {
	n := p.topic(t)
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	a.Source.Durable, a.Source.ExpiryPolicy = wire.DurableUnsettledState, wire.ExpireNever
	r.send(a)
	return r.attached(a)
}

func sharedSubscription(t *testing.T, p *peer) string {
	n := p.topic(t)
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	a.Source.Capabilities = append(a.Source.Capabilities, "shared")
	r.send(a)
	return r.attached(a)
}

// selector says whether a selector is refused, applied, or left out of the
// answer.
func selector(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	o := amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("color = 'red'")}}
	if s := attachReceiver(t, p, n, o); s != "attached" {
		return s
	}
	red, blue := text("red"), text("blue")
	red.ApplicationProperties = map[string]any{"color": "red"}
	blue.ApplicationProperties = map[string]any{"color": "blue"}
	put(t, p, n, blue, red)
	m, err := receiving(t, session(t, p), n, o).Receive(patient(t), nil)
	require.NoError(t, err)
	if string(m.GetData()) == "red" {
		return "applied"
	}
	return "not looked at"
}
