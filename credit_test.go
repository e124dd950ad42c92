package amqpflow_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func (p *peer) abort(l *peerLink) {
	p.mu.Lock()
	s := p.sessions[l.channel]
	id := s.nextID
	s.nextID++
	l.count++
	p.mu.Unlock()
	p.send(l.channel, &wire.Transfer{Handle: l.attach.Handle, DeliveryID: wire.Some(id), DeliveryTag: []byte{byte(id)}, MessageFormat: wire.Some(0), Aborted: true})
}

func (p *peer) creditOf(l *peerLink) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int32(l.limit - l.count)
}

func TestSubscription_abortedDeliveriesDoNotUseTheWindowUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, accepting, &amqpflow.SubscribeOptions{Credit: 4})
		quiet()
		l := p.link("orders", wire.RoleReceiver)
		for range 4 {
			p.abort(l)
		}
		quiet()
		assert.Positive(t, p.creditOf(l))
		shutdown(t, b)
	})
}

func TestSubscription_refusedDeliveryStarvesNoIdleWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { <-hold; return nil }, &amqpflow.SubscribeOptions{Credit: 3, Workers: 3})
		p.deliver("orders", data("1"))
		p.deliver("orders", data("2"))
		quiet()
		p.deliver("orders", []byte("rubbish"))
		quiet()
		assert.Positive(t, p.creditOf(p.link("orders", wire.RoleReceiver)))
		close(hold)
		shutdown(t, b)
	})
}

func TestSubscription_lanesDoNotWaitWhileTheWindowHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			if string(d.Data()) == "hold" {
				<-hold
			}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 4, Workers: 2, PartitionBy: func(*amqpflow.Delivery) string { return "a" }})
		for _, body := range []string{"go", "hold", "x", "y"} {
			p.deliver("orders", data(body))
		}
		quiet()
		assert.Positive(t, p.creditOf(p.link("orders", wire.RoleReceiver)))
		close(hold)
		shutdown(t, b)
	})
}

func TestStream_settledElsewhereGrantsForTheReaderThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		st := b.Stream("in", &amqpflow.SubscribeOptions{Credit: 4})
		p.connect(b)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *amqpflow.Delivery, 10)
		var wg sync.WaitGroup
		wg.Go(func() {
			for d, err := range st.Deliveries(ctx) {
				if err == nil {
					got <- d
				}
			}
		})
		for range 4 {
			p.deliver("in", data("x"))
		}
		quiet()
		require.NoError(t, (<-got).Accept(ctx))
		quiet()
		assert.Positive(t, p.creditOf(p.link("in", wire.RoleReceiver)))
		for range 3 {
			_ = (<-got).Accept(ctx)
		}
		cancel()
		wg.Wait()
		shutdown(t, b)
	})
}
