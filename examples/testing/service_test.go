package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

const (
	orders   amqpflow.Address = "orders"
	invoices amqpflow.Address = "invoices"
)

// bubble starts the service's own wiring, with the URL that it has in
// production, on a broker in memory. All of it lives in a synctest bubble:
// nothing takes real time, and synctest.Wait returns when everybody waits.
func bubble(t *testing.T, test func(t *testing.T, server *amqptest.Server, b *amqpflow.Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer()
		b := amqpflow.New("amqps://shop:secret@broker.example.com")
		Register(b, orders, invoices, map[string]int{"lamp": 1900})
		require.NoError(t, server.Connect(t.Context(), b))
		t.Cleanup(func() {
			assert.NoError(t, b.Shutdown(context.Background()))
			amqptest.Check(t, server) // nobody broke a rule of the protocol
			assert.NoError(t, server.Close())
		})
		test(t, server, b)
	})
}

func TestService_answersOrderWithInvoice(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, b *amqpflow.Broker) {
		order := Order{ID: "A-1", Item: "lamp", Count: 3}
		require.NoError(t, b.Publisher().Publish(t.Context(), orders, order))
		synctest.Wait()

		got, err := amqptest.Bodies[Invoice](server, invoices)
		require.NoError(t, err)
		assert.Equal(t, []Invoice{{Order: "A-1", Total: 5700}}, got)
	})
}

func TestService_rejectsItemWithoutPrice(t *testing.T) {
	bubble(t, func(t *testing.T, server *amqptest.Server, b *amqpflow.Broker) {
		order := Order{ID: "A-2", Item: "unicorn", Count: 1}
		require.NoError(t, b.Publisher().Publish(t.Context(), orders, order))
		require.NoError(t, server.Idle(t.Context())) // nothing queued, nothing unsettled

		settled := server.Settlements(orders)
		require.Len(t, settled, 1)
		assert.Equal(t, amqpflow.Rejected, settled[0].Outcome)
		assert.Contains(t, settled[0].Error.Description, `no price for "unicorn"`)
		assert.Empty(t, server.Messages(invoices))
	})
}
