package amqptest_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

func missing(t *testing.T, p *peer) node {
	n := p.queueNode(unique("truth-missing"))
	n.caps = nil
	return removed(t, p, n)
}

func receiverToNothing(t *testing.T, p *peer) string {
	return attachReceiver(t, p, missing(t, p), amqp.ReceiverOptions{})
}

func senderToNothing(t *testing.T, p *peer) string { return attachSender(t, p, missing(t, p)) }

func receiverToNothingWithCapability(t *testing.T, p *peer) string {
	return attachReceiver(t, p, removed(t, p, node{name: "x", address: missing(t, p).address, caps: []string{"queue"}}), amqp.ReceiverOptions{})
}

func senderToNothingWithCapability(t *testing.T, p *peer) string {
	n := missing(t, p)
	n.caps = []string{"queue"}
	return attachSender(t, p, n)
}

// refusedSessionLives attaches where it is refused and then where it is not.
func refusedSessionLives(t *testing.T, p *peer) string {
	n, s := p.queue(t, queueOptions{}), session(t, p)
	refused := "/nowhere"
	_, err := s.NewReceiver(patient(t), refused, &amqp.ReceiverOptions{SourceCapabilities: []string{"queue", "topic"}})
	first := why(err)
	_, err = s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps})
	return first + ", then " + why(err)
}

// bareName attaches to a queue by its bare name.
func bareName(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, node{address: n.name, caps: n.caps}, amqp.ReceiverOptions{})
}

func bareNameSender(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachSender(t, p, node{address: n.name, caps: n.caps})
}

// slashedName attaches in RabbitMQ's way.
func slashedName(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, removed(t, p, node{name: "/queues/" + n.name, address: "/queues/" + n.name}), amqp.ReceiverOptions{})
}

// oldSlashedName attaches in the way of RabbitMQ 3.
func oldSlashedName(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, removed(t, p, node{name: "/queue/" + n.name, address: "/queue/" + n.name}), amqp.ReceiverOptions{})
}

func fromAnExchange(t *testing.T, p *peer) string {
	return attachReceiver(t, p, node{address: "/exchanges/amq.direct/key"}, amqp.ReceiverOptions{})
}

// oddName has a space, a percent sign and a slash in the name of a queue.
func oddName(t *testing.T, p *peer) string {
	n := p.queueNamed(t, unique("truth")+" 50% a/b é", queueOptions{})
	put(t, p, n, text("a"))
	rcv := receiving(t, session(t, p), n, amqp.ReceiverOptions{})
	m, err := rcv.Receive(patient(t), nil)
	require.NoError(t, err)
	return string(m.GetData())
}

func nullSource(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = nil
	r.send(a)
	return r.attached(a)
}

func noSourceAddress(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	r.send(a)
	return r.attached(a)
}

func nullTarget(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target = nil
	r.send(a)
	return r.attached(a)
}

// attached says how the attach that was sent is answered.
func (r *rawClient) attached(a *wire.Attach) string {
	r.t.Helper()
	for {
		switch f := r.next().(type) {
		case *wire.Attach:
			if (f.Source != nil || a.Role == wire.RoleSender) && (f.Target != nil || f.Coordinator != nil || a.Role == wire.RoleReceiver) {
				r.send(&wire.Detach{Handle: a.Handle, Closed: true})
			}
		case *wire.Detach:
			if f.Error == nil {
				return "attached"
			}
			return said("detach", f.Error)
		case *wire.End:
			return said("end", f.Error)
		case *wire.Close:
			return said("close", f.Error)
		case nil:
			return "socket closed"
		}
	}
}

func coordinator(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target, a.Coordinator = nil, &wire.Coordinator{}
	r.send(a)
	return r.attached(a)
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

func sourceAnswered(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	a.Source.Outcomes = []wire.Symbol{"amqp:accepted:list", "amqp:released:list"}
	b := r.answer(a)
	var s []string
	for _, o := range b.Source.Outcomes {
		s = append(s, strings.TrimSuffix(strings.TrimPrefix(string(o), "amqp:"), ":list"))
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

func defaultOutcome(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	b := r.answer(a)
	if b.Source.DefaultOutcome == nil {
		return "none"
	}
	return wireState(*b.Source.DefaultOutcome)
}

func senderSettles(t *testing.T, p *peer) string {
	return modes(t, p, func(a *wire.Attach) { a.SndSettleMode = wire.SndSettled })
}

func receiverSecond(t *testing.T, p *peer) string {
	return modes(t, p, func(a *wire.Attach) { a.RcvSettleMode = wire.RcvSecond })
}

// modes attaches a receiver that asks for settlement modes, and says which it
// is to have.
func modes(t *testing.T, p *peer, ask func(*wire.Attach)) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	ask(a)
	b := r.answer(a)
	if b.Source == nil {
		return r.ending()
	}
	return fmt.Sprintf("snd %d, rcv %d", b.SndSettleMode, b.RcvSettleMode)
}

func maxMessageSize(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target = n.target()
	return fmt.Sprint(r.answer(a).MaxMessageSize)
}

// closingDetach and its sibling show how a detach is answered.
func closingDetach(t *testing.T, p *peer) string { return detached(t, p, true) }

func nonClosingDetach(t *testing.T, p *peer) string { return detached(t, p, false) }

func detached(t *testing.T, p *peer, closed bool) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(&wire.Detach{Handle: h, Closed: closed})
	if await[wire.Detach](r).Closed {
		return "closed"
	}
	return "not closed"
}

// sameNameTwice attaches two receivers of one name in one session.
func sameNameTwice(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a, b := r.attach(wire.RoleReceiver), r.attach(wire.RoleReceiver)
	a.Source, b.Source, b.Name = n.source(), n.source(), a.Name
	r.answer(a)
	r.send(b)
	return r.stolen(0, b)
}

// stolen says what becomes of the second of two links of one name, on that
// channel.
func (r *rawClient) stolen(channel uint16, second *wire.Attach) string {
	var seen []string
	fence := r.fence(channel)
	for {
		switch f := r.next().(type) {
		case *wire.Attach:
			if f.Name == fence {
				return cmp.Or(strings.Join(seen, ", "), "no answer")
			}
			seen = append(seen, "attached")
		case *wire.Detach:
			which := "first "
			if f.Handle == second.Handle {
				which = "second "
			}
			seen = append(seen, which+said("detach", f.Error))
		case *wire.End:
			return strings.Join(append(seen, said("end", f.Error)), ", ")
		case *wire.Close:
			return strings.Join(append(seen, said("close", f.Error)), ", ")
		case nil:
			return strings.Join(append(seen, "socket closed"), ", ")
		}
	}
}

// sameNameInAnotherSession attaches it on channel 1.
func sameNameInAnotherSession(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a, b := r.attach(wire.RoleReceiver), r.attach(wire.RoleReceiver)
	a.Source, b.Source, b.Name = n.source(), n.source(), a.Name
	r.answer(a)
	r.sendOn(1, &wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10})
	await[wire.Begin](r)
	r.sendOn(1, b)
	return r.stolen(1, b)
}

// sameNameBothWays attaches a sender and a receiver of one name.
func sameNameBothWays(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a, b := r.attach(wire.RoleReceiver), r.attach(wire.RoleSender)
	a.Source, b.Target, b.Name = n.source(), n.target(), a.Name
	r.answer(a)
	r.send(b)
	return r.stolen(0, b)
}

// sameNameAgain attaches a link again after it was closed.
func sameNameAgain(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	r.answer(a)
	r.send(&wire.Detach{Handle: a.Handle, Closed: true})
	await[wire.Detach](r)
	r.send(a)
	return r.attached(a)
}

func dynamicSource(t *testing.T, p *peer) string {
	rcv, err := session(t, p).NewReceiver(patient(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return why(err)
	}
	if rcv.Address() == "" {
		return "no address"
	}
	return "attached"
}

// dynamicRound sends a message to a dynamic node from another connection.
func dynamicRound(t *testing.T, p *peer) string {
	rcv, err := session(t, p).NewReceiver(patient(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return why(err)
	}
	snd, err := session(t, p).NewSender(patient(t), rcv.Address(), nil)
	if err != nil {
		return why(err)
	}
	if s := publish(t, snd, text("a")); s != "accepted" {
		return s
	}
	m, err := rcv.Receive(patient(t), nil)
	require.NoError(t, err)
	return "arrived " + string(m.GetData())
}

// dynamicForm says what the address of a dynamic node looks like.
func dynamicForm(t *testing.T, p *peer) string {
	rcv, err := session(t, p).NewReceiver(patient(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return why(err)
	}
	if i := strings.LastIndex(rcv.Address(), "/"); i >= 0 {
		return rcv.Address()[:i+1] + "…"
	}
	return "…"
}

// dynamicGone sends to a dynamic node whose link is closed.
func dynamicGone(t *testing.T, p *peer) string {
	rcv, err := session(t, p).NewReceiver(patient(t), "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return why(err)
	}
	require.NoError(t, rcv.Close(patient(t)))
	snd, err := session(t, p).NewSender(patient(t), rcv.Address(), nil)
	if err != nil {
		return why(err)
	}
	return publish(t, snd, text("a"))
}

// volatileQueue asks for a dynamic node in the one way that RabbitMQ has.
func volatileQueue(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = &wire.Source{
		Dynamic: true, ExpiryPolicy: wire.ExpireLinkDetach, Capabilities: []wire.Symbol{"rabbitmq:volatile-queue"},
	}
	a.SndSettleMode = wire.SndSettled
	r.send(a)
	return r.attached(a)
}

func noTargetAddress(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	r.send(a)
	return r.attached(a)
}

func dynamicTarget(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target.Dynamic = true
	r.send(a)
	return r.attached(a)
}

func wireState(s wire.State) string {
	switch s.Kind {
	case wire.StateNone:
		return "no state"
	case wire.StateAccepted:
		return "accepted"
	case wire.StateReleased:
		return "released"
	case wire.StateRejected:
		return said("rejected", s.Error)
	case wire.StateModified:
		b := "modified"
		if s.DeliveryFailed {
			b += " failed"
		}
		if s.UndeliverableHere {
			b += " undeliverable-here"
		}
		return b
	case wire.StateReceived:
		return "received"
	}
	return fmt.Sprintf("state %d", s.Kind)
}
