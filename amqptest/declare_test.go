package amqptest

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestDeclare_namesTheFieldThatIsBad(t *testing.T) {
	s := newServer(t, nil)
	require.NoError(t, s.Declare("topic:prices"))
	require.NoError(t, s.Declare("orders", nil))
	for want, call := range map[string]func() error{
		`declare "": invalid address`:                      func() error { return s.Declare("") },
		`declare "prices": amqp:not-allowed`:               func() error { return s.Declare("prices") },
		"NodeOptions.TTL: -1s is not a number of":          func() error { return s.Declare("orders", &NodeOptions{TTL: -time.Second}) },
		"NodeOptions.TTL: 1µs is not a number of":          func() error { return s.Declare("orders", &NodeOptions{TTL: time.Microsecond}) },
		"NodeOptions.MaxLength: -1 is below 0":             func() error { return s.Declare("orders", &NodeOptions{MaxLength: -1}) },
		"NodeOptions.MaxLength: a topic has none":          func() error { return s.Declare("topic:prices", &NodeOptions{MaxLength: 1}) },
		"NodeOptions.WhenFull: 9 does not exist":           func() error { return s.Declare("orders", &NodeOptions{MaxLength: 1, WhenFull: 9}) },
		"NodeOptions.WhenFull: there is no MaxLength":      func() error { return s.Declare("orders", &NodeOptions{WhenFull: WithholdWhenFull}) },
		"NodeOptions.QueueType: 9 does not exist":          func() error { return s.Declare("orders", &NodeOptions{QueueType: 9}) },
		"NodeOptions.QueueType: only DialectRabbitMQ":      func() error { return s.Declare("orders", &NodeOptions{QueueType: ClassicQueue}) },
		"NodeOptions.Bind: only DialectRabbitMQ":           func() error { return s.Declare("orders", &NodeOptions{Bind: []string{"amq.topic/x"}}) },
		`NodeOptions.DeadLetter: invalid address: "topic:`: func() error { return s.Declare("orders", &NodeOptions{DeadLetter: "topic:"}) },
		"NodeOptions.Expiry: amqp:not-allowed":             func() error { return s.Declare("orders", &NodeOptions{Expiry: "prices"}) },
	} {
		require.ErrorContains(t, call(), want)
	}
	assert.Panics(t, func() { _ = s.Declare("orders", nil, nil) })
}

func TestDeclare_changesANodeThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{MaxDeliveries: 2})
		require.NoError(t, s.Put("orders", text("0")))
		require.NoError(t, s.Declare("orders", &NodeOptions{MaxDeliveries: -1}))
		rcv := manual(t, connect(t, s, nil), "orders", 5)
		for i := range 5 {
			m := receive(t, rcv)
			assert.EqualValues(t, i, m.Header.DeliveryCount)
			require.NoError(t, rcv.ModifyMessage(t.Context(), m, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		}
	})
}

func TestDeclare_sendsDeadLettersToTheirQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Declare("orders", &NodeOptions{MaxDeliveries: 3, DeadLetter: "dead"}))
		require.NoError(t, s.Put("orders", numbered(2)...))
		ses := connect(t, s, nil)
		rcv := manual(t, ses, "orders", 4)
		require.NoError(t, rcv.RejectMessage(t.Context(), receive(t, rcv), nil))
		for range 3 {
			require.NoError(t, rcv.ModifyMessage(t.Context(), receive(t, rcv), &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		}
		require.NoError(t, s.Idle(t.Context()))
		assert.Equal(t, []string{"0", "1"}, ids(s.DeadLetters("orders")))
		dead := manual(t, ses, "dead", 2)
		for i := range 2 {
			m := receive(t, dead)
			assert.Equal(t, strconv.Itoa(i), m.Properties.MessageID)
			require.NoError(t, dead.RejectMessage(t.Context(), m, nil))
		}
		synctest.Wait()
		assert.Empty(t, s.Messages("dead"), "a queue without one of its own keeps none")
	})
}

func stateOfSend(t *testing.T, snd *amqp.Sender, m *amqp.Message) amqp.DeliveryState {
	t.Helper()
	receipt, err := snd.SendWithReceipt(t.Context(), m, nil)
	require.NoError(t, err)
	state, err := receipt.Wait(t.Context())
	require.NoError(t, err)
	return state
}

func TestFull_rejectsPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Declare("orders", &NodeOptions{MaxLength: 2}))
		ses := connect(t, s, nil)
		snd := sender(t, ses, "orders", nil)
		for _, m := range numbered(2) {
			require.IsType(t, &amqp.StateAccepted{}, stateOfSend(t, snd, m))
		}
		refused, ok := stateOfSend(t, snd, text("2")).(*amqp.StateRejected)
		require.True(t, ok)
		assert.Equal(t, amqp.ErrCondResourceLimitExceeded, refused.Error.Condition)
		require.NoError(t, s.Put("orders", text("put")))
		assert.Equal(t, []string{"0", "1", "put"}, bodies(t, s))
		rcv := manual(t, ses, "orders", 2)
		receive(t, rcv)
		receive(t, rcv)
		require.IsType(t, &amqp.StateAccepted{}, stateOfSend(t, snd, text("3")))
	})
}

func TestFull_dropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Declare("orders", &NodeOptions{MaxLength: 2, WhenFull: DropOldestWhenFull, DeadLetter: "dead"}))
		snd := sender(t, connect(t, s, nil), "orders", nil)
		for _, m := range numbered(4) {
			require.IsType(t, &amqp.StateAccepted{}, stateOfSend(t, snd, m))
		}
		assert.Equal(t, []string{"2", "3"}, bodies(t, s))
		assert.Equal(t, []string{"0", "1"}, ids(s.Messages("dead")))
	})
}

func TestFull_withholdsCreditUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Declare("orders", &NodeOptions{MaxLength: 3, WhenFull: WithholdWhenFull}))
		r := dialRaw(t, s).opened()
		r.send(attachSender(0))
		assert.EqualValues(t, 3, r.awaitFlow().LinkCredit.Value)
		for id := range uint32(3) {
			r.transfer(first(id), hello)
			assert.Equal(t, 2-id, r.awaitFlow().LinkCredit.Value)
		}
		late := attachSender(1)
		late.Name = "late"
		r.send(late)
		assert.Zero(t, r.awaitFlow().LinkCredit.Value)

		rcv := manual(t, connect(t, s, nil), "orders", 1)
		m := receive(t, rcv)
		for range 2 { // each may send one
			assert.EqualValues(t, 1, r.awaitFlow().LinkCredit.Value)
		}
		require.NoError(t, rcv.AcceptMessage(t.Context(), m))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestFull_holdsABrokersPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Declare("orders", &NodeOptions{MaxLength: 1, WhenFull: WithholdWhenFull}))
		b := amqpflow.New("amqp://localhost")
		require.NoError(t, s.Connect(t.Context(), b))
		const n = 5
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				assert.NoError(t, b.Publisher().Publish(t.Context(), "orders", strconv.Itoa(i)))
			}
		})
		synctest.Wait()
		assert.Len(t, s.Messages("orders"), 1)
		rcv := manual(t, connect(t, s, nil), "orders", n)
		for i := range n {
			m := receive(t, rcv)
			assert.Equal(t, strconv.Itoa(i), string(m.GetData()))
			require.NoError(t, rcv.AcceptMessage(t.Context(), m))
		}
		wg.Wait()
		require.NoError(t, b.Shutdown(t.Context()))
	})
}
