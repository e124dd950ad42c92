package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A delivery that is aborted uses credit and brings nothing to settle, so no
// settlement grants anew.
func TestSubscription_grantsAnewAfterAbortedDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		got := make(chan string, 1)
		amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[string]) error {
			got <- m.Body
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 2})
		p.connect(b)
		l := p.link("orders", wire.RoleReceiver)
		p.until(func() bool { return l.limit-l.count == 2 }, "credit")
		for range 2 {
			p.mu.Lock()
			s := p.sessions[l.channel]
			id := s.nextID
			s.nextID++
			l.count++
			p.mu.Unlock()
			p.send(l.channel, &wire.Transfer{
				Handle: l.attach.Handle, DeliveryID: wire.Some(id), DeliveryTag: []byte{byte(id)}, MessageFormat: wire.Some(0), Aborted: true,
			})
		}
		p.deliver("orders", data("kept"))
		assert.Equal(t, "kept", <-got)
		shutdown(t, b)
	})
}
