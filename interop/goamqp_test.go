package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRound_goAMQP(t *testing.T) {
	t.Parallel()
	round(t, func(ctx context.Context, url string) {
		conn, err := amqp.Dial(ctx, url, &amqp.ConnOptions{IdleTimeout: time.Second})
		require.NoError(t, err)
		session, err := conn.NewSession(ctx, nil)
		require.NoError(t, err)
		r := goAMQP{ctx, session}
		for _, step := range []func(*testing.T){
			r.send, r.receive, r.outcomes, r.redelivery, r.request, r.large, r.drain, r.browse, r.idle,
		} {
			step(t)
		}
		require.NoError(t, conn.Close())
	})
}

// goAMQP does the round through go-amqp's own API. ctx is the round's.
type goAMQP struct {
	ctx     context.Context
	session *amqp.Session
}

func (r goAMQP) send(t *testing.T) {
	for i := range 10 {
		r.put(t, "sent", message(fmt.Sprint("s-", i)))
	}
}

func (r goAMQP) receive(t *testing.T) {
	receiver := r.open(t, "sent", 10, nil)
	for i := range 10 {
		m := r.expect(t, receiver, fmt.Sprint("s-", i))
		assert.Equal(t, fmt.Sprint("body of s-", i), string(m.GetData()))
	}
	require.NoError(t, receiver.Close(r.ctx))
}

func (r goAMQP) outcomes(t *testing.T) {
	receiver := r.open(t, "outcomes", 6, nil)
	got := map[any]*amqp.Message{}
	for _, id := range []string{"accepted", "rejected", "released", "modified"} {
		r.put(t, "outcomes", message(id))
		got[id] = r.next(t, receiver)
		require.Equal(t, id, got[id].Properties.MessageID)
	}
	require.NoError(t, receiver.AcceptMessage(r.ctx, got["accepted"]))
	require.NoError(t, receiver.RejectMessage(r.ctx, got["rejected"], &amqp.Error{
		Condition: "interop:unwanted", Description: "a description",
	}))
	require.NoError(t, receiver.ReleaseMessage(r.ctx, got["released"]))
	require.NoError(t, receiver.ModifyMessage(r.ctx, got["modified"], &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	counts := map[any]uint32{}
	for range 2 {
		m := r.next(t, receiver)
		counts[m.Properties.MessageID] = m.Header.DeliveryCount
		require.NoError(t, receiver.AcceptMessage(r.ctx, m))
	}
	assert.Equal(t, map[any]uint32{"released": 0, "modified": 1}, counts)
	require.NoError(t, receiver.Close(r.ctx))
}

func (r goAMQP) redelivery(t *testing.T) {
	r.put(t, "redelivered", message("r-0"))
	receiver := r.open(t, "redelivered", 1, nil)
	require.Equal(t, "r-0", r.next(t, receiver).Properties.MessageID)
	require.NoError(t, receiver.Close(r.ctx))
	receiver = r.open(t, "redelivered", 1, nil)
	r.expect(t, receiver, "r-0")
	require.NoError(t, receiver.Close(r.ctx))
}

func (r goAMQP) request(t *testing.T) {
	replies := r.open(t, "", 1, &amqp.ReceiverOptions{DynamicAddress: true})
	request := amqp.NewMessage([]byte("lamp"))
	request.Properties = &amqp.MessageProperties{MessageID: "q-0", ReplyTo: new(replies.Address())}
	r.put(t, "requests", request)
	r.answer(t)
	reply := r.next(t, replies)
	assert.Equal(t, "LAMP", string(reply.GetData()))
	assert.Equal(t, "q-0", reply.Properties.CorrelationID)
	require.NoError(t, replies.AcceptMessage(r.ctx, reply))
	require.NoError(t, replies.Close(r.ctx))
}

func (r goAMQP) answer(t *testing.T) {
	requests := r.open(t, "requests", 1, nil)
	request := r.next(t, requests)
	answer := amqp.NewMessage(bytes.ToUpper(request.GetData()))
	answer.Properties = &amqp.MessageProperties{CorrelationID: request.Properties.MessageID}
	r.put(t, *request.Properties.ReplyTo, answer)
	require.NoError(t, requests.AcceptMessage(r.ctx, request))
	require.NoError(t, requests.Close(r.ctx))
}

func (r goAMQP) large(t *testing.T) {
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(i % 251)
	}
	m := message("l-0")
	m.Data = [][]byte{body}
	r.put(t, "large", m)
	receiver := r.open(t, "large", 1, nil)
	assert.True(t, bytes.Equal(body, r.expect(t, receiver, "l-0").GetData()), "the body came back")
	require.NoError(t, receiver.Close(r.ctx))
}

func (r goAMQP) drain(t *testing.T) {
	receiver := r.open(t, "drained", 10, nil)
	for i := range 3 {
		r.put(t, "drained", message(fmt.Sprint("d-", i)))
		r.expect(t, receiver, fmt.Sprint("d-", i))
	}
	require.NoError(t, receiver.DrainCredit(r.ctx, nil))
	assert.Nil(t, receiver.Prefetched())
	require.NoError(t, receiver.Close(r.ctx))
}

func (r goAMQP) browse(t *testing.T) {
	r.put(t, "browsed", message("b-0"))
	r.put(t, "browsed", message("b-1"))
	for _, mode := range []amqp.SourceDistributionMode{amqp.SourceDistributionModeCopy, amqp.SourceDistributionModeMove} {
		receiver := r.open(t, "browsed", 2, &amqp.ReceiverOptions{SourceDistributionMode: mode})
		r.expect(t, receiver, "b-0")
		r.expect(t, receiver, "b-1")
		require.NoError(t, receiver.Close(r.ctx))
	}
}

func (r goAMQP) idle(t *testing.T) {
	<-time.After(2 * idleTimeout)
	r.put(t, "idle", message("i-0"))
	receiver := r.open(t, "idle", 1, nil)
	r.expect(t, receiver, "i-0")
	require.NoError(t, receiver.Close(r.ctx))
}

func message(id string) *amqp.Message {
	m := amqp.NewMessage([]byte("body of " + id))
	m.Properties = &amqp.MessageProperties{MessageID: id}
	return m
}

func (r goAMQP) put(t *testing.T, address string, m *amqp.Message) {
	t.Helper()
	sender, err := r.session.NewSender(r.ctx, address, nil)
	require.NoError(t, err)
	require.NoError(t, sender.Send(r.ctx, m, nil))
	require.NoError(t, sender.Close(r.ctx))
}

// open attaches a receiver whose credit is granted here, once.
func (r goAMQP) open(t *testing.T, address string, credit uint32, o *amqp.ReceiverOptions) *amqp.Receiver {
	t.Helper()
	if o == nil {
		o = &amqp.ReceiverOptions{}
	}
	o.Credit = -1
	receiver, err := r.session.NewReceiver(r.ctx, address, o)
	require.NoError(t, err)
	require.NoError(t, receiver.IssueCredit(credit))
	return receiver
}

func (r goAMQP) next(t *testing.T, receiver *amqp.Receiver) *amqp.Message {
	t.Helper()
	m, err := receiver.Receive(r.ctx, nil)
	require.NoError(t, err)
	return m
}

func (r goAMQP) expect(t *testing.T, receiver *amqp.Receiver, id string) *amqp.Message {
	t.Helper()
	m := r.next(t, receiver)
	require.Equal(t, id, m.Properties.MessageID)
	require.NoError(t, receiver.AcceptMessage(r.ctx, m))
	return m
}
