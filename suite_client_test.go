package amqpflow_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"
)

// The suite's second client is go-amqp: it puts in what amqpflow reads, and
// reads what amqpflow has left.

// rawSession opens a connection of its own, which is closed when the test ends.
func rawSession(t *testing.T, p suitePeer) *amqp.Session {
	t.Helper()
	conn, err := amqp.Dial(patient(t), p.url(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewSession(patient(t), nil)
	require.NoError(t, err)
	return s
}

// ownerProperty is the application property by which a message is found among
// the dead letters of a broker that has one queue for all.
const ownerProperty = "suite"

// put stores messages in the queue, in order, and returns once the peer has
// accepted all of them.
func (q *testQueue) put(t *testing.T, ms ...*amqp.Message) {
	t.Helper()
	ctx := patient(t)
	sender, err := rawSession(t, q.p).NewSender(ctx, q.node, &amqp.SenderOptions{TargetCapabilities: q.caps})
	require.NoError(t, err)
	receipts := make([]amqp.SendReceipt, len(ms))
	const inFlight = 200
	confirm := func(i int) {
		state, err := receipts[i].Wait(ctx)
		require.NoError(t, err)
		require.IsType(t, &amqp.StateAccepted{}, state)
	}
	for i, m := range ms {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[ownerProperty] = q.name
		if receipts[i], err = sender.SendWithReceipt(ctx, m, nil); err != nil {
			require.NoError(t, err)
		}
		if i >= inFlight {
			confirm(i - inFlight)
		}
	}
	for i := max(0, len(ms)-inFlight); i < len(ms); i++ {
		confirm(i)
	}
	require.NoError(t, sender.Close(ctx))
}

// putBodies stores one durable message for each body.
func (q *testQueue) putBodies(t *testing.T, bodies ...string) {
	t.Helper()
	ms := make([]*amqp.Message, len(bodies))
	for i, body := range bodies {
		ms[i] = textMessage(body)
	}
	q.put(t, ms...)
}

func textMessage(body string) *amqp.Message {
	return &amqp.Message{Header: durableHeader(), Data: [][]byte{[]byte(body)}}
}

// durableHeader has the standard's default priority, which go-amqp's zero
// header has not: brokers deliver by priority.
func durableHeader() *amqp.MessageHeader { return &amqp.MessageHeader{Durable: true, Priority: 4} }

// take receives and accepts exactly n messages.
func (q *testQueue) take(t *testing.T, n int, filters ...amqp.LinkFilter) []*amqp.Message {
	t.Helper()
	ctx := patient(t)
	receiver, err := rawSession(t, q.p).NewReceiver(ctx, q.node, &amqp.ReceiverOptions{
		SourceCapabilities: q.caps, Credit: -1, Filters: filters,
	})
	require.NoError(t, err)
	require.NoError(t, receiver.IssueCredit(uint32(n)))
	got := make([]*amqp.Message, n)
	for i := range got {
		if got[i], err = receiver.Receive(ctx, nil); err != nil {
			require.NoError(t, err, "message %d of %d", i+1, n)
		}
		require.NoError(t, receiver.AcceptMessage(ctx, got[i]))
	}
	require.NoError(t, receiver.Close(ctx))
	return got
}

// rest takes what is in the queue until nothing has come for the peer's quiet
// time.
func (q *testQueue) rest(t *testing.T) []*amqp.Message {
	t.Helper()
	return q.drain(t, func([]*amqp.Message) time.Duration { return q.p.quiet() })
}

// restWith is rest for a queue whose last message is known: it waits for that.
func (q *testQueue) restWith(t *testing.T, last string) []*amqp.Message {
	t.Helper()
	return q.drain(t, func(got []*amqp.Message) time.Duration {
		if n := len(got); n > 0 && string(slices.Concat(got[n-1].Data...)) == last {
			return q.p.quiet()
		}
		return patience
	})
}

// drain takes messages until none has come for as long as patience says, which
// is told what has come so far.
func (q *testQueue) drain(t *testing.T, patience func([]*amqp.Message) time.Duration) []*amqp.Message {
	t.Helper()
	receiver, err := rawSession(t, q.p).NewReceiver(patient(t), q.node, &amqp.ReceiverOptions{
		SourceCapabilities: q.caps, Credit: 500, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	require.NoError(t, err)
	var got []*amqp.Message
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience(got))
		m, err := receiver.Receive(ctx, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			require.NoError(t, receiver.Close(patient(t)))
			return got
		}
		require.NoError(t, err)
		got = append(got, m)
	}
}

// bodiesOf are the messages' data, as text.
func bodiesOf(ms []*amqp.Message) []string {
	bodies := make([]string, len(ms))
	for i, m := range ms {
		bodies[i] = string(slices.Concat(m.Data...))
	}
	return bodies
}

// countOf is a message's delivery-count.
func countOf(m *amqp.Message) uint32 {
	if m.Header == nil {
		return 0
	}
	return m.Header.DeliveryCount
}
