package amqptest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"
)

// patient is a context for one exchange with the peer.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// session is a go-amqp session on a connection of its own.
func session(t *testing.T, p *peer) *amqp.Session {
	t.Helper()
	c, err := amqp.Dial(patient(t), p.url, &amqp.ConnOptions{ContainerID: unique("truth")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.NewSession(patient(t), nil)
	require.NoError(t, err)
	return s
}

func sending(t *testing.T, s *amqp.Session, n node) *amqp.Sender {
	t.Helper()
	snd, err := s.NewSender(patient(t), n.address, &amqp.SenderOptions{TargetCapabilities: n.caps})
	require.NoError(t, err)
	return snd
}

func receiving(t *testing.T, s *amqp.Session, n node, o amqp.ReceiverOptions) *amqp.Receiver {
	t.Helper()
	o.SourceCapabilities = append(o.SourceCapabilities, n.caps...)
	rcv, err := s.NewReceiver(patient(t), n.address, &o)
	require.NoError(t, err)
	return rcv
}

// put publishes messages and requires that each was accepted.
func put(t *testing.T, p *peer, n node, ms ...*amqp.Message) {
	t.Helper()
	snd := sending(t, session(t, p), n)
	for _, m := range ms {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[owner] = n.name
		require.Equal(t, "accepted", publish(t, snd, m))
	}
}

// publish sends m and returns what became of it.
func publish(t *testing.T, snd *amqp.Sender, m *amqp.Message) string {
	t.Helper()
	receipt, err := snd.SendWithReceipt(patient(t), m, nil)
	if err != nil {
		return why(err)
	}
	state, err := receipt.Wait(patient(t))
	if err != nil {
		return why(err)
	}
	return stateText(state)
}

func stateText(s amqp.DeliveryState) string {
	switch s := s.(type) {
	case *amqp.StateAccepted:
		return "accepted"
	case *amqp.StateReleased:
		return "released"
	case *amqp.StateModified:
		return "modified"
	case *amqp.StateRejected:
		if s.Error == nil {
			return "rejected"
		}
		return "rejected " + short(s.Error.Condition)
	case nil:
		return "no state"
	}
	return "another state"
}

func short(c amqp.ErrCond) string { return strings.TrimPrefix(string(c), "amqp:") }

// why says what the peer ended and with which condition.
func why(err error) string {
	var link *amqp.LinkError
	var session *amqp.SessionError
	var conn *amqp.ConnError
	var refused *amqp.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &link):
		return saidBy("detach", link.RemoteErr)
	case errors.As(err, &session):
		return saidBy("end", session.RemoteErr)
	case errors.As(err, &conn):
		return saidBy("close", conn.RemoteErr)
	case errors.As(err, &refused):
		return saidBy("detach", refused)
	}
	return err.Error()
}

func saidBy(what string, e *amqp.Error) string {
	if e == nil {
		return what
	}
	return what + " " + short(e.Condition)
}

// text is a message whose message-id and body are both id.
func text(id string) *amqp.Message {
	m := amqp.NewMessage([]byte(id))
	m.Properties = &amqp.MessageProperties{MessageID: id}
	return m
}
