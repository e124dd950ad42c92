package main

import (
	"testing"

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

func TestService_stopsWithoutLosingAnOrder(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, b *amqpflow.Broker) {
		put(t, server, Order{ID: "A-4", Item: "lamp", Count: 1})
		require.NoError(t, b.Shutdown(t.Context()))
		put(t, server, Order{ID: "A-5", Item: "lamp", Count: 1})

		assert.Len(t, server.Messages(invoices), 1)
		left, err := amqptest.Bodies[Order](server, orders)
		require.NoError(t, err)
		assert.Equal(t, []Order{{ID: "A-5", Item: "lamp", Count: 1}}, left)
	})
}
