package amqpflow_test

import (
	"context"
	"errors"
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

// A Stream's reader that has a delivery which the peer takes back: settling it is
// an error, its place in the window is free at once, and nothing is kept of it.
func TestStream_yieldedDeliveryTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, &amqpflow.SubscribeOptions{Credit: 1})
		var kept *amqpflow.Delivery
		r := read(t.Context(), s, func(d *amqpflow.Delivery) {
			if string(d.Data()) == "kept" {
				kept = d
				return
			}
			assert.NoError(t, d.Accept(t.Context()))
		})
		for range 100 {
			id := p.deliver("orders", data("kept"))
			<-r.got
			synctest.Wait()
			channel := p.link("orders", wire.RoleReceiver).channel
			p.send(channel, &wire.Disposition{Role: wire.RoleSender, First: id, Last: id, Settled: true, State: wire.State{Kind: wire.StateReleased}})
			d := p.awaitDisposition()
			assert.Equal(t, wire.StateReleased, d.State.Kind)
			assert.ErrorIs(t, kept.Accept(t.Context()), amqpflow.ErrLinkLost)
			assert.ErrorIs(t, kept.Settle(t.Context(), errors.New("x")), amqpflow.ErrLinkLost)
			p.deliver("orders", data("next"))
			<-r.got
			p.awaitDisposition()
		}
		assert.Zero(t, amqpflow.Yielded(s))
		for _, outcomes := range p.outcomes() {
			assert.Len(t, outcomes, 1)
		}
		shutdown(t, b)
	})
}
