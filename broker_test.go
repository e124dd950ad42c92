package amqpflow_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestBroker_publishToAnInvalidAddressSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		for _, addr := range []amqpflow.Address{"", "topic:", "\xff"} {
			err := b.Publisher().Publish(t.Context(), addr, "x")
			assert.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
		}
		synctest.Wait()
		assert.Empty(t, p.sent(wire.CodeAttach, wire.CodeTransfer))
		shutdown(t, b)
	})
}

func TestBroker_copySharesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		c := *b
		p.connect(b)
		require.NoError(t, c.ConnectInProcess(t.Context(), p.dial), "connected already")
		require.NoError(t, c.Ready())
		assert.Same(t, b.Publisher(), c.Publisher())
		require.NoError(t, c.Publisher().Publish(t.Context(), "orders", "x"))
		sub := c.Subscribe("orders", accepting)
		require.NoError(t, sub.Attached(t.Context()))
		assert.Equal(t, []*amqpflow.Subscription{sub}, b.Subscriptions())
		assert.Len(t, p.sent(wire.CodeOpen), 1)
		shutdown(t, &c)
		assert.ErrorIs(t, b.Publisher().Publish(t.Context(), "orders", "x"), amqpflow.ErrNotConnected)
	})
}

func TestBroker_zeroAnswersNotConnected(t *testing.T) {
	var b amqpflow.Broker
	ctx := context.Background()
	for name, err := range map[string]error{
		"Connect": b.Connect(ctx), "Run": b.Run(ctx), "Shutdown": b.Shutdown(ctx), "Ready": b.Ready(), "Err": b.Err(),
		"ConnectInProcess": b.ConnectInProcess(ctx, func(context.Context) (net.Conn, error) { panic("dialled") }),
		"Publish":          b.Publisher().Publish(ctx, "orders", "x"),
		"Publish of zero":  new(amqpflow.Publisher).Publish(ctx, "orders", "x"),
	} {
		assert.ErrorIs(t, err, amqpflow.ErrNotConnected, name)
	}
	<-b.Done()
	assert.Empty(t, b.Subscriptions())
	assert.Panics(t, func() { b.Subscribe("orders", accepting) })
	assert.Panics(t, func() {
		amqpflow.Subscribe(&b, "orders", func(context.Context, *amqpflow.Message[string]) error { return nil })
	})
}

func TestBroker_subscribeAfterConnectAttachesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		p.on(wire.CodeAttach, func(f frame) bool {
			a := f.perf.(*wire.Attach)
			if a.Source == nil || a.Source.Address != "missing" {
				return false
			}
			p.refuse(f.channel, a, &wire.Error{Condition: "amqp:not-found"})
			return true
		})
		sub := b.Subscribe("orders", accepting)
		require.NoError(t, sub.Attached(t.Context()))
		assert.Equal(t, amqpflow.Attached, sub.State())
		bad := b.Subscribe("", accepting)
		require.ErrorIs(t, bad.Attached(t.Context()), amqpflow.ErrInvalidAddress)
		require.ErrorIs(t, bad.Err(), amqpflow.ErrInvalidAddress)
		missing := b.Subscribe("missing", accepting)
		var refused *amqpflow.AttachError
		require.ErrorAs(t, missing.Attached(t.Context()), &refused)
		require.ErrorAs(t, missing.Err(), &refused)
		assert.Equal(t, amqpflow.Attaching, missing.State(), "it may come to be there")
		require.ErrorContains(t, b.Ready(), `"missing"`)
		require.NoError(t, b.Err(), "the others go on")

		p.mute(wire.CodeAttach)
		slow := b.Subscribe("slow", accepting)
		started := time.Now()
		require.ErrorIs(t, slow.Attached(within(t, time.Second)), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(started))
		assert.Equal(t, amqpflow.Attaching, slow.State())
		_ = b.Shutdown(within(t, time.Second))
		require.Error(t, slow.Attached(t.Context()))
		<-slow.Done()
	})
}

// Registering and closing while Connect is under way: what came is attached,
// what went is not missed, and what is wrong says so.
func TestBroker_registryChangesWhileItConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		attaches := make(chan frame, 10)
		p.on(wire.CodeAttach, func(f frame) bool { attaches <- f; return true })
		b := amqpflow.New("amqp://localhost")
		one := b.Subscribe("one", accepting)
		two := b.Subscribe("two", accepting)
		connected := make(chan error, 1)
		go func() { connected <- b.ConnectInProcess(t.Context(), p.dial) }()
		first, second := <-attaches, <-attaches
		late := b.Subscribe("late", accepting)
		bad := b.Subscribe("", accepting, &amqpflow.SubscribeOptions{Credit: -1})
		require.NoError(t, one.Close(t.Context()))
		require.NoError(t, two.Close(t.Context()))
		p.on(wire.CodeAttach, func(frame) bool { return false })
		p.answer(first)
		p.answer(second)
		require.NoError(t, <-connected, "a subscription that was closed is not missed")
		require.NoError(t, late.Attached(t.Context()))
		require.ErrorIs(t, bad.Attached(t.Context()), amqpflow.ErrInvalidAddress)
		assert.Equal(t, amqpflow.Ended, one.State())
		require.NoError(t, one.Err())
		quiet()
		assert.Equal(t, []*amqpflow.Subscription{late, bad}, b.Subscriptions())
		for _, f := range []frame{first, second} {
			assert.Contains(t, p.trace(), fmt.Sprintf("end %d", f.channel))
		}
		assert.Len(t, p.sent(wire.CodeAttach), 3, "the bad one never attached")
		shutdown(t, b)
	})
}
