package amqpflow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// Wherever a delivery is behind its handler, one that the peer takes back there is
// answered for once, and soon, and nothing holds its place.
func TestSubscription_deliveryTakenBackBehindItsHandler(t *testing.T) {
	for name, options := range map[string]amqpflow.SubscribeOptions{
		"while OnFailure decides":              {},
		"on its way into a hold":               {},
		"on its way into its lane's hold":      {OrderedRetry: true},
		"while its dead letter is sent":        {MaxAttempts: 1, DeadLetter: "dead"},
		"while its lane's dead letter is sent": {MaxAttempts: 1, DeadLetter: "dead", OrderedRetry: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				options.Credit, options.RetryMin, options.RetryMax = 1, time.Hour, time.Hour
				if name == "while OnFailure decides" {
					options.OnFailure = func(_ *amqpflow.Delivery, err error) error { <-goOn; return err }
				}
				var settled gathered[error]
				p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					if string(d.Data()) == "bad" {
						return errors.New("x")
					}
					return nil
				}, &options, &amqpflow.Options{IdleTimeout: -1, Observer: &amqpflow.Observer{
					Settled: func(_ *amqpflow.Delivery, _ amqpflow.Outcome, _ time.Duration, err error) { settled.add(err) },
				}})
				if strings.HasPrefix(name, "on its way") {
					amqpflow.WithJitter(b, func(bound time.Duration) time.Duration { <-goOn; return bound })
				}
				p.mute(wire.CodeTransfer)
				id := p.deliver("orders", data("bad"))
				quiet()
				p.takeBack(id)
				quiet()
				close(goOn)
				quiet()
				assert.Equal(t, map[uint32][]wire.StateKind{id: {wire.StateReleased}}, p.outcomes())
				assert.Zero(t, sub.Stats().Retrying)
				require.Len(t, settled.all(), 1)
				require.ErrorIs(t, settled.all()[0], amqpflow.ErrLinkLost)
				next := p.deliver("orders", data("good"))
				quiet()
				assert.Equal(t, []wire.StateKind{wire.StateAccepted}, p.outcomes()[next])
				_ = b.Shutdown(within(t, time.Second)) // the dead letter is never answered
			})
		})
	}
}

// One of a batch that the peer takes back does not touch the outcome of the others.
func TestSubscribeBatch_oneDeliveryTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var failed gathered[error]
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{Error: func(err error) { failed.add(err) }}})
		sub := amqpflow.SubscribeBatch(b, "orders", func(context.Context, []*amqpflow.Message[[]byte]) error {
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 3})
		p.connect(b)
		for range 3 {
			p.deliver("orders", data("x"))
		}
		quiet()
		p.takeBack(1)
		quiet()
		close(goOn)
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}, 1: {wire.StateReleased}, 2: {wire.StateAccepted}}, p.outcomes())
		require.Len(t, failed.all(), 1)
		require.ErrorIs(t, failed.all()[0], amqpflow.ErrLinkLost)
		assert.Equal(t, uint64(2), sub.Stats().Accepted)
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
