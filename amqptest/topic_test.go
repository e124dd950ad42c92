package amqptest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// subscription is a manual receiver of the topic.
func subscription(t *testing.T, ses *amqp.Session, addr string, credit uint32) *amqp.Receiver {
	t.Helper()
	rcv, err := ses.NewReceiver(t.Context(), addr, &amqp.ReceiverOptions{Credit: -1, SourceCapabilities: []string{"topic"}})
	require.NoError(t, err)
	if credit > 0 {
		require.NoError(t, rcv.IssueCredit(credit))
	}
	return rcv
}

func toTopic(t *testing.T, ses *amqp.Session, addr string) *amqp.Sender {
	t.Helper()
	return sender(t, ses, addr, &amqp.SenderOptions{TargetCapabilities: []string{"topic"}})
}

func TestTopic_givesEverySubscriptionACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		one, two := subscription(t, ses, "prices", 9), subscription(t, ses, "prices", 9)
		require.NoError(t, toTopic(t, ses, "prices").Send(t.Context(), text("0"), nil))
		require.NoError(t, s.Put("topic:prices", text("1")))
		for _, rcv := range []*amqp.Receiver{one, two} {
			for _, id := range []string{"0", "1"} {
				m := receive(t, rcv)
				assert.Equal(t, id, m.Properties.MessageID)
				assert.True(t, m.Header.FirstAcquirer)
				require.NoError(t, rcv.AcceptMessage(t.Context(), m))
			}
		}
		require.NoError(t, s.Idle(t.Context()))
		assert.Len(t, s.Settlements("topic:prices"), 4)
	})
}

func TestTopic_settlesAndRedeliversPerSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		one, two := subscription(t, ses, "prices", 1), subscription(t, ses, "prices", 1)
		require.NoError(t, s.Put("topic:prices", text("0")))
		first, other := receive(t, one), receive(t, two)
		require.NoError(t, one.AcceptMessage(t.Context(), first))
		require.NoError(t, two.ModifyMessage(t.Context(), other, &amqp.ModifyMessageOptions{
			DeliveryFailed: true, Annotations: amqp.Annotations{"why": "later"},
		}))
		require.NoError(t, one.IssueCredit(1))
		require.NoError(t, two.IssueCredit(1))
		again := receive(t, two)
		assert.EqualValues(t, 1, again.Header.DeliveryCount)
		assert.Equal(t, "later", again.Annotations["why"])
		require.NoError(t, two.RejectMessage(t.Context(), again, nil))
		synctest.Wait()
		assert.Nil(t, one.Prefetched())
		assert.Len(t, s.DeadLetters("topic:prices"), 1)
		assert.Empty(t, s.Messages("topic:prices"))
	})
}

func TestTopic_keepsNothingForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd := toTopic(t, ses, "prices")
		require.NoError(t, snd.Send(t.Context(), text("lost"), nil), "accepted")
		rcv := subscription(t, ses, "prices", 0)
		require.NoError(t, snd.Send(t.Context(), text("kept"), nil))
		require.NoError(t, s.Put("topic:prices", text("too")))
		waiting, err := Bodies[string](s, amqpflow.Topic("prices"))
		require.NoError(t, err)
		assert.Equal(t, []string{"kept", "too"}, waiting)
		require.NoError(t, rcv.Close(t.Context()))
		assert.Empty(t, s.Messages("topic:prices"), "went with the subscription")
	})
}

func TestTopic_isToldFromAQueueByCapability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		toTopic(t, ses, "prices")
		_, err := ses.NewReceiver(t.Context(), "prices", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}})
		assert.Equal(t, amqp.ErrCondNotAllowed, conditionOf(t, err))
		rcv := manual(t, ses, "prices", 1) // takes what is there
		require.NoError(t, s.Put("raw:prices", text("0")))
		assert.Equal(t, "0", receive(t, rcv).Properties.MessageID)
		manual(t, ses, "orders", 0)
		_, err = ses.NewSender(t.Context(), "orders", &amqp.SenderOptions{TargetCapabilities: []string{"topic"}})
		assert.Equal(t, amqp.ErrCondNotAllowed, conditionOf(t, err))
	})
}

func TestTopic_carriesABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		b := amqpflow.New("amqp://localhost")
		got := make(chan string, 2)
		for range 2 {
			amqpflow.Subscribe(b, amqpflow.Topic("prices"), func(_ context.Context, m *amqpflow.Message[string]) error {
				got <- m.Body
				return nil
			})
		}
		require.NoError(t, s.Connect(t.Context(), b))
		require.NoError(t, b.Publisher().Publish(t.Context(), amqpflow.Topic("prices"), "up"))
		assert.Equal(t, "up", <-got)
		assert.Equal(t, "up", <-got)
		require.NoError(t, b.Shutdown(t.Context()))
	})
}
