package amqptest_test

import (
	"bytes"
	"net/url"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func publishToAQueue(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return publish(t, sending(t, session(t, p), n), text("a"))
}

// publishSettled sends without wanting an answer.
func publishSettled(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	s := session(t, p)
	snd, err := s.NewSender(patient(t), n.address, &amqp.SenderOptions{
		TargetCapabilities: n.caps, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	require.NoError(t, err)
	require.NoError(t, snd.Send(patient(t), text("a"), nil))
	rcv := receiving(t, session(t, p), n, amqp.ReceiverOptions{})
	m, err := rcv.Receive(patient(t), nil)
	require.NoError(t, err)
	return "arrived " + string(m.GetData())
}

// publishUnroutable sends where no queue is.
func publishUnroutable(t *testing.T, p *peer) string {
	n := removed(t, p, node{name: "/exchanges/amq.direct/" + unique("none")})
	n.address = n.name
	snd, err := session(t, p).NewSender(patient(t), n.address, nil)
	if err != nil {
		return why(err)
	}
	return publish(t, snd, text("a"))
}

func publishToNoExchange(t *testing.T, p *peer) string {
	n := removed(t, p, node{name: "/exchanges/" + unique("none") + "/key"})
	n.address = n.name
	snd, err := session(t, p).NewSender(patient(t), n.address, nil)
	if err != nil {
		return why(err)
	}
	return publish(t, snd, text("a"))
}

// publishToNobody sends to an address that is not there, without capability,
// and looks for the message afterwards.
func publishToNobody(t *testing.T, p *peer) string {
	n := missing(t, p)
	snd, err := session(t, p).NewSender(patient(t), n.address, nil)
	if err != nil {
		return why(err)
	}
	outcome := publish(t, snd, text("a"))
	return outcome + ", " + left(t, p, n)
}

func oneMiB(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	put(t, p, n, amqp.NewMessage(body))
	m, err := receiving(t, session(t, p), n, amqp.ReceiverOptions{}).Receive(patient(t), nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, m.GetData()))
	return "arrived"
}

// seventeenMiB is more than RabbitMQ takes.
func seventeenMiB(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.sender(n)
	r.transfer(h, wire.AppendData(nil, make([]byte, 17<<20)))
	return r.outcome()
}

// abort gives up a delivery after its first frame.
func abort(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.sender(n)
	half, err := text("half").MarshalBinary()
	require.NoError(t, err)
	r.fragment(wire.Transfer{
		Handle: h, DeliveryID: wire.Some(0), DeliveryTag: []byte("0"), MessageFormat: wire.Some(0), More: true,
	}, half[:len(half)/2])
	r.fragment(wire.Transfer{Handle: h, Aborted: true}, nil)
	whole, err := text("whole").MarshalBinary()
	require.NoError(t, err)
	r.fragment(wire.Transfer{
		Handle: h, DeliveryID: wire.Some(1), DeliveryTag: []byte("1"), MessageFormat: wire.Some(0),
	}, whole)
	if s := r.outcome(); s != "accepted" {
		return s
	}
	return left(t, p, n)
}

// garbage is a payload that is no message.
func garbage(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	r.transfer(r.sender(n), []byte("hello"))
	return r.outcome()
}

// userOfAnother publishes with a user-id that is not the connection's.
func userOfAnother(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.UserID = []byte("somebody")
	r := openRaw(t, p)
	return r.publish(r.sender(n), m)
}

func ownUser(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	u, err := url.Parse(p.url)
	require.NoError(t, err)
	m := text("a")
	m.Properties.UserID = []byte(u.User.Username())
	r := openRaw(t, p)
	return r.publish(r.sender(n), m)
}
