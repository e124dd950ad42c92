package amqpflow_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestSubscribeBatch_undecodableIsSettledBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, goOn := make(chan []part, 10), make(chan struct{})
		var p *peer
		p, b, sub := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[part]) error {
			started <- bodiesOfBatch(ms)
			<-goOn
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 3, Credit: 10})
		for _, body := range []string{`{"n":0}`, `bad`, `{"n":2}`, `bad`, `bad`, `bad`} {
			p.deliver("orders", data(body))
		}
		assert.Equal(t, []part{{0}, {2}}, <-started)
		quiet()
		outcomes := p.outcomes()
		assert.Equal(t, map[uint32][]wire.StateKind{1: {wire.StateRejected}}, outcomes)
		close(goOn)
		quiet()
		outcomes = p.outcomes()
		require.Len(t, outcomes, 6)
		for id, want := range []wire.StateKind{wire.StateAccepted, wire.StateRejected, wire.StateAccepted, wire.StateRejected, wire.StateRejected, wire.StateRejected} {
			assert.Equal(t, []wire.StateKind{want}, outcomes[uint32(id)])
		}
		assert.Empty(t, started, "no call for a batch in which nothing is left")
		assert.Zero(t, sub.Stats().Running)
		p.deliver("orders", data(`{"n":6}`))
		assert.Equal(t, []part{{6}}, <-started, "the worker lives")
		shutdown(t, b)
	})
}

func TestSubscribeBatch_onFailureDecidesAboutTheUndecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		p, b, _ := serveBatches(t, func(context.Context, []*amqpflow.Message[part]) error { return errors.New("whole") },
			&amqpflow.SubscribeOptions{BatchSize: 2, OnFailure: func(_ *amqpflow.Delivery, err error) error {
				failures = append(failures, err)
				return amqpflow.Release()
			}})
		p.deliver("orders", data("bad"))
		p.deliver("orders", data(`{"n":1}`))
		quiet()
		require.Len(t, failures, 2)
		var bad *amqpflow.DecodeError
		require.ErrorAs(t, failures[0], &bad)
		require.EqualError(t, failures[1], "whole")
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateReleased}, 1: {wire.StateReleased}}, p.outcomes())
		shutdown(t, b)
	})
}

func TestDelivery_markIsTheOutcomeUnlessItIsSettled(t *testing.T) {
	for name, result := range map[string]error{"nil": nil, "an error": errors.New("x"), "an outcome": amqpflow.Reject(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p, b, _ := serveBatches(t, func(ctx context.Context, ms []*amqpflow.Message[string]) error {
					ms[0].Mark(nil)
					ms[1].Mark(errors.New("a retry"))
					ms[2].Mark(amqpflow.Reject(errors.New("bad")))
					ms[3].Mark(nil)
					ms[3].Mark(amqpflow.Release())
					assert.NoError(t, ms[4].Settle(ctx, amqpflow.Release()))
					ms[4].Mark(amqpflow.Reject(nil))
					ms[5].Mark(nil)
					assert.NoError(t, ms[5].Settle(ctx, amqpflow.Release()))
					return result
				}, &amqpflow.SubscribeOptions{BatchSize: 7, RetryMin: -1, OnFailure: func(_ *amqpflow.Delivery, err error) error {
					asked++
					return err
				}})
				for range 7 {
					p.deliver("orders", data("x"))
				}
				quiet()
				returned := map[string]wire.StateKind{"nil": wire.StateAccepted, "an error": wire.StateModified, "an outcome": wire.StateRejected}
				assert.Equal(t, map[uint32][]wire.StateKind{
					0: {wire.StateAccepted}, 1: {wire.StateModified}, 2: {wire.StateRejected}, 3: {wire.StateReleased},
					4: {wire.StateReleased}, 5: {wire.StateReleased}, 6: {returned[name]},
				}, p.outcomes())
				want := 0
				if name == "an error" {
					want = 1
				}
				assert.Equal(t, want, asked, "OnFailure is not asked about marks")
				shutdown(t, b)
			})
		})
	}
}

func TestDelivery_markWinsOverASingleHandlersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			d.Mark(amqpflow.Release())
			return errors.New("x")
		}, nil)
		p.deliver("orders", data("x"))
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateReleased}}, p.outcomes())
		shutdown(t, b)
	})
}

func TestSubscribeBatch_panicAndGoexitSettleEachOnce(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("x") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook)
				calls := 0
				p, b, sub := serveBatches(t, func(_ context.Context, ms []*amqpflow.Message[string]) error {
					if calls++; calls == 1 {
						ms[0].Mark(nil)
						assert.NoError(t, ms[1].Accept(t.Context()))
						end()
					}
					return nil
				}, &amqpflow.SubscribeOptions{BatchSize: 4, RetryMin: -1}, &amqpflow.Options{Logger: book.logger()})
				for range 8 {
					p.deliver("orders", data("x"))
				}
				quiet()
				outcomes := p.outcomes()
				require.Len(t, outcomes, 8)
				for id := range uint32(8) {
					want := wire.StateAccepted
					if id == 2 || id == 3 {
						want = wire.StateModified
					}
					assert.Equal(t, []wire.StateKind{want}, outcomes[id], "delivery %d", id)
				}
				assert.Equal(t, 2, calls, "the worker lives")
				assert.Zero(t, sub.Stats().Running)
				book.assertLine(t, "level=ERROR", "handler panicked", "address=orders", "stack=")
				shutdown(t, b)
			})
		})
	}
}

func TestSubscribeBatch_atMostOnceSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, handler := batchCalls(time.Now())
		p, b, sub := serveBatches(t, handler, &amqpflow.SubscribeOptions{BatchSize: 2, Credit: 4, AtMostOnce: true})
		for range 20 {
			p.deliver("orders", data("x"))
		}
		quiet()
		assert.Len(t, calls, 10, "their places in the window are free again")
		assert.Empty(t, p.outcomes())
		assert.Zero(t, sub.Stats().Accepted)
		shutdown(t, b)
	})
}

func TestSubscribeBatch_contextEndsWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		p, b, sub := serveBatches(t, func(ctx context.Context, ms []*amqpflow.Message[string]) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			assert.ErrorIs(t, ms[0].Accept(ctx), amqpflow.ErrLinkLost)
			return nil
		}, &amqpflow.SubscribeOptions{BatchSize: 2})
		p.deliver("orders", data("a"))
		p.deliver("orders", data("b"))
		quiet()
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: &wire.Error{Condition: "acme:gone"}})
		require.ErrorIs(t, <-cause, amqpflow.ErrLinkLost)
		<-time.After(time.Second)
		require.NoError(t, sub.Attached(t.Context()))
		assert.Equal(t, uint64(1), sub.Stats().Reattached)
		assert.Empty(t, p.outcomes())
		shutdown(t, b)
	})
}
