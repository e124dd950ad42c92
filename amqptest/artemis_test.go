package amqptest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

func newArtemis(t *testing.T) *Server {
	return newServer(t, &Options{Dialect: amqpflow.DialectArtemis})
}

func TestArtemis_makesTopicsUnlessToldOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newArtemis(t)
		c, ses := connectBoth(t, s, nil)
		assert.Equal(t, "apache-activemq-artemis", c.Properties()["product"])
		require.IsType(t, &amqp.StateAccepted{}, stateOfSend(t, sender(t, ses, "orders", nil), text("lost")))
		_, err := ses.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}})
		assert.Equal(t, amqp.ErrCondIllegalState, conditionOf(t, err))
		astray := sender(t, ses, "orders", &amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
		rcv := manual(t, ses, "orders", 9)
		require.IsType(t, &amqp.StateAccepted{}, stateOfSend(t, astray, text("lost, too")))
		require.NoError(t, s.Put(amqpflow.Raw("orders"), text("0")))
		assert.Equal(t, "0", receive(t, rcv).Properties.MessageID)
		require.NoError(t, s.Put("invoices", text("1")))
		assert.Equal(t, "1", receive(t, manual(t, ses, "invoices", 1)).Properties.MessageID)
	})
}

func TestArtemis_buriesInItsTwoQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newArtemis(t)
		require.NoError(t, s.Put("orders", text("0")))
		require.NoError(t, s.Put("invoices", living("1", time.Second)))
		rcv := manual(t, connect(t, s, nil), "orders", 10)
		for i := range 10 {
			m := receive(t, rcv)
			assert.EqualValues(t, i, m.Header.DeliveryCount)
			require.NoError(t, rcv.ModifyMessage(t.Context(), m, &amqp.ModifyMessageOptions{
				DeliveryFailed: true, Annotations: amqp.Annotations{"x-opt-why": "not looked at"},
			}))
		}
		<-time.After(time.Second)
		require.NoError(t, s.Idle(t.Context()))
		dead, expired := s.Messages("DLQ"), s.Messages("ExpiryQueue")
		require.Equal(t, []string{"0"}, ids(dead))
		assert.Equal(t, "orders", dead[0].Annotations["x-opt-ORIG-ADDRESS"])
		assert.NotContains(t, dead[0].Annotations, "x-opt-why")
		require.Equal(t, []string{"1"}, ids(expired))
		assert.Contains(t, expired[0].Annotations, "x-opt-ACTUAL-EXPIRY")
		assert.Equal(t, []string{"0"}, ids(s.DeadLetters("orders")))
	})
}

func TestArtemis_subscribesToPatterns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newArtemis(t)
		ses := connect(t, s, nil)
		all, one := subscription(t, ses, "prices.#", 9), subscription(t, ses, "prices.*", 9)
		for _, name := range []string{"prices", "prices.eu", "prices.eu.steel", "costs.eu"} {
			require.NoError(t, toTopic(t, ses, name).Send(t.Context(), text(name), nil))
		}
		for _, id := range []string{"prices", "prices.eu", "prices.eu.steel"} {
			assert.Equal(t, id, receive(t, all).Properties.MessageID)
		}
		assert.Equal(t, "prices.eu", receive(t, one).Properties.MessageID)
		synctest.Wait()
		assert.Nil(t, all.Prefetched())
		assert.Nil(t, one.Prefetched())
	})
}

func TestArtemis_deliversByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newArtemis(t)
		for _, p := range []uint8{0, 9, 4, 9} {
			m := text(string('0' + rune(p)))
			m.Header = &amqp.MessageHeader{Priority: p}
			require.NoError(t, s.Put("orders", m))
		}
		assert.Equal(t, []string{"9", "9", "4", "0"}, ids(s.Messages("orders")))
		rcv := manual(t, connect(t, s, nil), "orders", 1)
		m := receive(t, rcv)
		assert.False(t, m.Header.FirstAcquirer)
		require.NoError(t, rcv.ReleaseMessage(t.Context(), m))
		synctest.Wait()
		assert.Equal(t, []string{"9", "9", "4", "0"}, ids(s.Messages("orders")))
	})
}

func TestDialect_thatIsNotModelledIsABadOption(t *testing.T) {
	for _, d := range []amqpflow.Dialect{amqpflow.DialectServiceBus, 99} {
		s := NewServer(&Options{Dialect: d})
		require.ErrorContains(t, s.Put("orders", text("0")), "amqptest: Options.Dialect: ")
		require.Error(t, s.Close())
	}
}

// A broker of this module finds its way in each dialect by the product alone.
func TestDialect_carriesABroker(t *testing.T) {
	for _, d := range []amqpflow.Dialect{amqpflow.DialectGeneric, amqpflow.DialectArtemis, amqpflow.DialectRabbitMQ} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, &Options{Dialect: d})
			require.NoError(t, s.Declare("orders", &NodeOptions{MaxDeliveries: 2}))
			b := amqpflow.New("amqp://localhost")
			attempts := make(chan int, 2)
			sub := amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
				attempts <- m.Attempt()
				return amqpflow.Retry(errors.New("later"))
			})
			require.NoError(t, s.Connect(t.Context(), b))
			require.NoError(t, sub.Attached(t.Context()))
			require.NoError(t, b.Publisher().Publish(t.Context(), "orders", "x"))
			assert.Equal(t, 1, <-attempts)
			assert.Equal(t, 2, <-attempts)
			require.NoError(t, s.Idle(t.Context()))
			assert.Len(t, s.DeadLetters("orders"), 1, d)
			assert.Len(t, s.Settlements("orders"), 2)
			require.NoError(t, b.Shutdown(t.Context()))
		})
	}
}
