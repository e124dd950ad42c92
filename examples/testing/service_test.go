package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

const (
	orders   amqpflow.Address = "orders"
	invoices amqpflow.Address = "invoices"
)

// bubble starts the service as production does, with the URL that it has
// there, on a broker in memory. All of it lives in a synctest bubble, whose
// time is not real.
func bubble(t *testing.T, test func(t *testing.T, server *amqptest.Server, b *amqpflow.Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer()
		b := amqpflow.New("amqps://shop:secret@broker.example.com")
		service := NewService(b)
		require.NoError(t, server.Connect(t.Context(), b))
		require.True(t, service.Healthy())
		t.Cleanup(func() {
			assert.NoError(t, b.Shutdown(context.Background()))
			amqptest.Check(t, server) // nobody broke a rule of the protocol
			assert.NoError(t, server.Close())
		})
		test(t, server, b)
	})
}

// put is what another program does: it sends an order. Then a minute passes,
// which takes no time in a bubble.
func put(t *testing.T, server *amqptest.Server, order Order) {
	t.Helper()
	require.NoError(t, server.Put(orders, message(t, order)))
	<-time.After(time.Minute)
}

func TestService_answersOrderWithInvoice(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, _ *amqpflow.Broker) {
		put(t, server, Order{ID: "A-1", Item: "lamp", Count: 3})

		got, err := amqptest.Bodies[Invoice](server, invoices)
		require.NoError(t, err)
		assert.Equal(t, []Invoice{{Order: "A-1", Total: 5700}}, got)
		settled := server.Settlements(orders)
		require.Len(t, settled, 1)
		assert.Equal(t, amqpflow.Accepted, settled[0].Outcome)
	})
}

func TestService_rejectsItemWithoutPrice(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, _ *amqpflow.Broker) {
		put(t, server, Order{ID: "A-2", Item: "unicorn", Count: 1})

		settled := server.Settlements(orders)
		require.Len(t, settled, 1)
		assert.Equal(t, amqpflow.Rejected, settled[0].Outcome)
		assert.Contains(t, settled[0].Error.Description, `no price for "unicorn"`)
		assert.Empty(t, server.Messages(invoices))
		assert.Len(t, server.DeadLetters(orders), 1)
	})
}
