package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Whatever the receive goroutine does at the moment, it learns of a delivery that
// the peer takes back right behind its transfer.
func TestSubscription_deliveryTakenBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
				t.Error("the handler's context did not end")
			}
			return nil
		}, nil)
		channel := p.link("orders", wire.RoleReceiver).channel
		for range 500 {
			id := p.deliver("orders", data("back"))
			p.send(channel, &wire.Disposition{Role: wire.RoleSender, First: id, Last: id, Settled: true})
			d := p.awaitDisposition()
			assert.Equal(t, wire.StateReleased, d.State.Kind)
		}
		shutdown(t, b)
	})
}
