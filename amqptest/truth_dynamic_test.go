package amqptest_test

import (
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

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
	removed(t, p, node{name: rcv.Address()}) // Artemis makes it again
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

func dynamicTarget(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target.Dynamic = true
	r.send(a)
	return r.attached(a)
}
