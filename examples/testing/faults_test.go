package main

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

func TestService_triesAgainWhenTheInvoiceIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, _ *amqpflow.Broker) {
		require.NoError(t, server.Fault(amqptest.Answer(invoices, amqpflow.Rejected, nil)))
		put(t, server, Order{ID: "A-3", Item: "lamp", Count: 1})

		settled := server.Settlements(orders)
		require.Len(t, settled, 2)
		assert.Equal(t, amqpflow.Modified, settled[0].Outcome)
		assert.Equal(t, amqpflow.Accepted, settled[1].Outcome)
		assert.EqualValues(t, 1, settled[1].DeliveryCount)
	})
}

func TestService_finishesTheOrderThatItHasBegun(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, b *amqpflow.Broker) {
		require.NoError(t, server.Fault(amqptest.Answer(invoices, amqpflow.Accepted, nil).Delay(time.Second)))
		require.NoError(t, server.Put(orders, message(t, Order{ID: "A-4", Item: "lamp", Count: 1})))
		require.NoError(t, server.Put(orders, message(t, Order{ID: "A-5", Item: "lamp", Count: 1})))
		synctest.Wait() // the service waits for the answer to its first invoice
		require.NoError(t, b.Shutdown(t.Context()))

		written, err := amqptest.Bodies[Invoice](server, invoices)
		require.NoError(t, err)
		assert.Equal(t, []Invoice{{Order: "A-4", Total: 1900}}, written)
		left, err := amqptest.Bodies[Order](server, orders)
		require.NoError(t, err)
		assert.Equal(t, []Order{{ID: "A-5", Item: "lamp", Count: 1}}, left)
	})
}

func message(t *testing.T, order Order) *amqp.Message {
	t.Helper()
	body, err := json.Marshal(order)
	require.NoError(t, err)
	return amqp.NewMessage(body)
}

func TestService_takesUpAgainAfterALostConnection(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, _ *amqpflow.Broker) {
		require.NoError(t, server.Fault(amqptest.Drop().After(2))) // the order, and its invoice
		put(t, server, Order{ID: "A-6", Item: "lamp", Count: 1})

		// The order came again, for nobody had heard what became of it: delivery
		// is at least once, and whoever reads invoices has to bear one twice.
		settled := server.Settlements(orders)
		require.Len(t, settled, 1)
		assert.Equal(t, amqpflow.Accepted, settled[0].Outcome)
		got, err := amqptest.Bodies[Invoice](server, invoices)
		require.NoError(t, err)
		assert.Equal(t, []Invoice{{Order: "A-6", Total: 1900}, {Order: "A-6", Total: 1900}}, got)
	})
}
