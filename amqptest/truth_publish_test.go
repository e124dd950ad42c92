package amqptest_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
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

func publishToATopic(t *testing.T, p *peer) string {
	n := p.topic(t)
	snd, err := session(t, p).NewSender(patient(t), n.address, &amqp.SenderOptions{TargetCapabilities: n.caps})
	if err != nil {
		return why(err)
	}
	return publish(t, snd, text("a"))
}

// twoSubscribers of a topic.
func twoSubscribers(t *testing.T, p *peer) string {
	n := p.topic(t)
	s := session(t, p)
	var rcvs []*amqp.Receiver
	for range 2 {
		rcv, err := s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps})
		if err != nil {
			return why(err)
		}
		rcvs = append(rcvs, rcv)
	}
	put(t, p, n, text("a"))
	var got []string
	for _, rcv := range rcvs {
		m, err := rcv.Receive(patient(t), nil)
		require.NoError(t, err)
		got = append(got, string(m.GetData()))
	}
	return strings.Join(got, " and ")
}

// lateSubscriber comes after the message.
func lateSubscriber(t *testing.T, p *peer) string {
	n := p.topic(t)
	s := session(t, p)
	if _, err := s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps}); err != nil {
		return why(err)
	}
	put(t, p, n, text("a"))
	return left(t, p, n)
}

// topicAsAQueue attaches with the capability of the other kind.
func topicAsAQueue(t *testing.T, p *peer) string {
	n := p.topic(t)
	s := session(t, p)
	if _, err := s.NewReceiver(patient(t), n.address, &amqp.ReceiverOptions{SourceCapabilities: n.caps}); err != nil {
		return why(err)
	}
	return attachReceiver(t, p, node{address: n.address, caps: []string{"queue"}}, amqp.ReceiverOptions{})
}

func queueAsATopic(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	return attachReceiver(t, p, node{address: n.address, caps: []string{"topic"}}, amqp.ReceiverOptions{})
}

// competing consumers have a credit of one each.
func competing(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	a, b := openRaw(t, p), openRaw(t, p)
	ha, hb := a.receiver(n), b.receiver(n)
	a.send(a.credit(ha, 1))
	b.send(b.credit(hb, 1))
	put(t, p, n, text("a"), text("b"))
	got := []string{idOf(t, await[wire.Transfer](a)), idOf(t, await[wire.Transfer](b))}
	slices.Sort(got)
	return strings.Join(got, " and ")
}

// relay publishes over an anonymous terminus.
func relay(t *testing.T, p *peer, m *amqp.Message) string {
	t.Helper()
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	r.send(a)
	await[wire.Flow](r)
	return r.publish(a.Handle, m)
}

// publish sends m and says what came back for it.
func (r *rawClient) publish(handle uint32, m *amqp.Message) string {
	r.t.Helper()
	payload, err := m.MarshalBinary()
	require.NoError(r.t, err)
	r.transfer(handle, payload)
	return r.outcome()
}

// outcome is what comes back for a delivery.
func (r *rawClient) outcome() string {
	r.t.Helper()
	for {
		switch f := r.next().(type) {
		case *wire.Disposition:
			return wireState(f.State)
		case *wire.Detach:
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

func relayToAQueue(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Properties.To = &n.address
	return relay(t, p, m) + ", " + left(t, p, n)
}

func relayToNothing(t *testing.T, p *peer) string {
	n := missing(t, p)
	m := text("a")
	m.Properties.To = &n.address
	return relay(t, p, m)
}

func relayWithoutTo(t *testing.T, p *peer) string { return relay(t, p, text("a")) }

func relayToNonsense(t *testing.T, p *peer) string {
	m := text("a")
	m.Properties.To = new("/non/sense")
	removed(t, p, node{name: *m.Properties.To})
	return relay(t, p, m)
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

// otherFormat sends a message of a format that is not AMQP's.
func otherFormat(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.sender(n)
	payload, err := text("a").MarshalBinary()
	require.NoError(t, err)
	r.fragment(wire.Transfer{
		Handle: h, DeliveryID: wire.Some(0), DeliveryTag: []byte("0"), MessageFormat: wire.Some(7),
	}, payload)
	if s := r.outcome(); s != "accepted" {
		return s
	}
	x := openRaw(t, p).takeOne(n)
	return fmt.Sprintf("arrived as %d", x.MessageFormat.Value)
}

// takeOne attaches to n and waits for a delivery.
func (r *rawClient) takeOne(n node) *wire.Transfer {
	r.t.Helper()
	h := r.receiver(n)
	r.send(r.credit(h, 1))
	return await[wire.Transfer](r)
}

func noBody(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	s := publish(t, sending(t, session(t, p), n), &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "a"}})
	if s != "accepted" {
		return s
	}
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

func nothingAtAll(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	r.transfer(r.sender(n), nil)
	if s := r.outcome(); s != "accepted" {
		return s
	}
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

// bodyOf says of what sections the body consists.
func bodyOf(t *testing.T, x *wire.Transfer) string {
	var s wire.Sections
	require.NoError(t, s.Parse(x.Payload))
	switch s.Body {
	case wire.BodyData:
		return fmt.Sprintf("%d data, %d bytes", s.DataCount, s.DataSize)
	case wire.BodySequence:
		return fmt.Sprintf("%d sequences", s.SequenceCount)
	case wire.BodyValue:
		return "value"
	}
	return "no body"
}

func twoDataSections(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, &amqp.Message{Data: [][]byte{[]byte("a"), []byte("b")}})
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

func sequenceBody(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, &amqp.Message{Sequence: [][]any{{"a"}, {"b"}}})
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

// valueBody has a list in it.
func valueBody(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, &amqp.Message{Value: []any{"a", int64(1)}})
	return bodyOf(t, openRaw(t, p).takeOne(n))
}

// garbage is a payload that is no message.
func garbage(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	r.transfer(r.sender(n), []byte("hello"))
	return r.outcome()
}

// noHeader says what the header of a message without one is when it arrives.
func noHeader(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	return headerOf(t, openRaw(t, p).takeOne(n))
}

func fullHeader(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Header = &amqp.MessageHeader{Durable: true, Priority: 7, TTL: 3600_000_000_000, DeliveryCount: 2}
	put(t, p, n, m)
	return headerOf(t, openRaw(t, p).takeOne(n))
}

func headerOf(t *testing.T, x *wire.Transfer) string {
	var s wire.Sections
	require.NoError(t, s.Parse(x.Payload))
	h := s.Header
	r := fmt.Sprintf("priority %d, count %d", h.Priority, h.DeliveryCount)
	if h.Durable {
		r = "durable, " + r
	}
	if h.FirstAcquirer {
		r += ", first"
	}
	if h.HasTTL {
		r += ", ttl"
	}
	return r
}

// annotated publishes a message with an annotation under a reserved key.
func annotated(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.Annotations = amqp.Annotations{"color": "red", "x-opt-size": "big"}
	r := openRaw(t, p)
	s := r.publish(r.sender(n), m)
	if s != "accepted" {
		return s
	}
	return s + ", " + strings.Join(annotationsOf(t, openRaw(t, p).takeOne(n)), " ")
}

// annotationsOf are the keys of the message annotations in order.
func annotationsOf(t *testing.T, x *wire.Transfer) []string {
	var m amqp.Message
	require.NoError(t, m.UnmarshalBinary(x.Payload))
	var keys []string
	for k := range m.Annotations {
		keys = append(keys, fmt.Sprint(k))
	}
	slices.Sort(keys)
	return keys
}

// sections sends a message with each section and says which of them arrive.
func sections(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	m := text("a")
	m.DeliveryAnnotations = amqp.Annotations{"x-opt-d": "1"}
	m.Annotations = amqp.Annotations{"x-opt-m": "1"}
	m.ApplicationProperties = map[string]any{"a": "1"}
	m.Footer = amqp.Annotations{"x-opt-f": "1"}
	put(t, p, n, m)
	var s wire.Sections
	require.NoError(t, s.Parse(openRaw(t, p).takeOne(n).Payload))
	var got []string
	for _, section := range []struct {
		name  string
		bytes []byte
	}{
		{"delivery-annotations", s.DeliveryAnnotations}, {"message-annotations", s.MessageAnnotations},
		{"properties", s.Properties}, {"application-properties", s.ApplicationProperties}, {"footer", s.Footer},
	} {
		if section.bytes == nil {
			got = append(got, "no "+section.name)
		}
	}
	if got == nil {
		return "all"
	}
	return strings.Join(got, ", ")
}

// priorities says in which order messages of priorities 0, 4 and 9 come.
func priorities(t *testing.T, p *peer) string { return inOrder(t, p, queueOptions{}) }

func classicPriorities(t *testing.T, p *peer) string {
	return inOrder(t, p, queueOptions{classic: true})
}

func inOrder(t *testing.T, p *peer, o queueOptions) string {
	n := p.queue(t, o)
	var ms []*amqp.Message
	for _, priority := range []uint8{0, 4, 9} {
		m := text(fmt.Sprint(priority))
		m.Header = &amqp.MessageHeader{Priority: priority}
		ms = append(ms, m)
	}
	put(t, p, n, ms...)
	return left(t, p, n)
}

// duplicate messages have the same message-id and Artemis's property.
func duplicate(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("a"))
	return left(t, p, n)
}
