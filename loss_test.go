package amqpflow_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

var errDeleted = &wire.Error{Condition: "amqp:resource-deleted", Description: "queue is gone"}

// A receiving link or its session lost is made again, and nothing else is
// touched.
func TestSubscription_recoversFromTheLossOfItsLinkOrSession(t *testing.T) {
	for _, tc := range []struct {
		name   string
		lose   func(*peer, *peerLink)
		remote bool
		answer string // what the client owes
		begins int
	}{
		{"closing detach with an error", func(p *peer, l *peerLink) {
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: errDeleted})
		}, true, "detach receiver lost", 4},
		{"closing detach without one", func(p *peer, l *peerLink) {
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		}, false, "detach receiver lost", 4},
		{"non-closing detach with an error", func(p *peer, l *peerLink) {
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Error: errDeleted})
		}, true, "detach receiver lost", 4},
		{"non-closing detach without one", func(p *peer, l *peerLink) {
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle})
		}, false, "detach receiver lost", 4},
		{"end with an error", func(p *peer, l *peerLink) {
			p.send(l.channel, &wire.End{Error: errDeleted})
		}, true, "end", 4},
		{"end without one", func(p *peer, l *peerLink) { p.send(l.channel, &wire.End{}) }, false, "end", 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				book := new(logbook)
				reports := make(chan error, 10)
				states := make(chan string, 20)
				b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost", &amqpflow.Options{
					Logger: book.logger(),
					Observer: &amqpflow.Observer{
						Error: func(err error) { reports <- err },
						State: func(s *amqpflow.Subscription, state amqpflow.State, _ error) {
							states <- fmt.Sprint(s.Address(), " ", state)
						},
					},
				}))
				handlers := make(chan context.Context, 1)
				settled := make(chan error, 1)
				lost := b.Subscribe("lost", func(ctx context.Context, d *amqpflow.Delivery) error {
					handlers <- ctx
					<-ctx.Done()
					settled <- d.Accept(ctx)
					return nil
				})
				handled := make(chan struct{}, 1)
				other := b.Subscribe("other", func(context.Context, *amqpflow.Delivery) error { handled <- struct{}{}; return nil })
				p.connect(b)
				for range 3 {
					p.deliver("lost", data("x"))
				}
				ctx := <-handlers
				l := p.link("lost", wire.RoleReceiver)
				for len(states) > 0 {
					<-states
				}
				tc.lose(p, l)
				quiet()

				assert.Equal(t, amqpflow.Attaching, lost.State())
				require.ErrorIs(t, lost.Err(), amqpflow.ErrLinkLost)
				require.ErrorIs(t, context.Cause(ctx), amqpflow.ErrLinkLost)
				var failed *amqpflow.SettleError
				require.ErrorAs(t, <-settled, &failed)
				require.ErrorIs(t, failed, amqpflow.ErrLinkLost)
				assert.Equal(t, amqpflow.Address("lost"), failed.Address)
				assert.Equal(t, amqpflow.Accepted, failed.Outcome)
				if tc.remote {
					var remote *amqp.Error
					require.ErrorAs(t, lost.Err(), &remote)
					assert.Equal(t, amqp.ErrCondResourceDeleted, remote.Condition)
					assert.ErrorContains(t, lost.Err(), "queue is gone")
				}
				require.ErrorContains(t, b.Ready(), `"lost"`)
				require.ErrorIs(t, b.Ready(), amqpflow.ErrLinkLost)
				require.NotErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
				assert.Empty(t, handlers, "what was held of the lost link is dropped")
				assert.Zero(t, lost.Stats().Held)
				p.deliver("other", data("x"))
				<-handled
				require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))

				require.NoError(t, lost.Attached(t.Context()))
				quiet()
				require.NoError(t, b.Ready())
				require.NoError(t, lost.Err())
				assert.Equal(t, uint64(1), lost.Stats().Reattached)
				assert.Zero(t, other.Stats().Reattached)
				assert.Len(t, p.sent(wire.CodeOpen), 1)
				assert.Len(t, p.sent(wire.CodeBegin), tc.begins, "the publisher's, two, and another")
				assert.Len(t, p.sent(wire.CodeAttach), 4)
				p.deliver("lost", data("y"))
				<-handlers
				owed := tc.answer
				if owed == "end" {
					owed = fmt.Sprintf("end %d", l.channel)
				}
				assert.Contains(t, p.trace(), owed)
				assert.Equal(t, "lost attaching", <-states)
				assert.Equal(t, "lost attached", <-states)
				assert.Empty(t, states)
				assert.Empty(t, reports)
				book.assertLine(t, "level=WARN", "link lost", "address=lost")
				book.assertLine(t, "level=INFO", "recovered", "address=lost", "after=100ms", "attempts=1")
				require.Error(t, lost.Close(within(t, time.Second)), "the handler waits for its context")
				<-settled
				shutdown(t, b)
			})
		})
	}
}

// What is left of a lost link goes: its session, of which peers allow few.
func TestSubscription_lostLinkEndsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, accepting, nil)
		for range 200 { // more than the channels that there are
			l := p.link("orders", wire.RoleReceiver)
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: errDeleted})
			<-time.After(time.Minute)
			require.NoError(t, sub.Attached(t.Context()))
		}
		assert.Len(t, p.sent(wire.CodeEnd), 200)
		require.NoError(t, sub.Close(t.Context()))
		shutdown(t, b)
	})
}

// A link that the peer detaches at once after the attach, with no goroutine of
// the subscription started yet.
func TestSubscription_detachedRightAfterItsAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.on(wire.CodeAttach, func(f frame) bool {
			p.answer(f)
			p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Attach).Handle, Closed: true, Error: errDeleted})
			return true
		})
		b := amqpflow.New("amqp://localhost")
		sub := b.Subscribe("orders", accepting)
		err := b.ConnectInProcess(t.Context(), p.dial)
		if err != nil { // the detach may be noticed as a refusal, or as a loss
			var refused *amqpflow.AttachError
			require.ErrorAs(t, err, &refused)
		} else {
			quiet()
			require.Error(t, sub.Err())
		}
		_ = b.Shutdown(within(t, time.Second))
		synctest.Wait()
		assertGone(t, p)
	})
}

// A peer that sends more than its credit breaks the protocol: the link is
// ended, with less than a window and one delivery taken.
func TestSubscription_endsWhereThePeerExceedsItsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		stuck := make(chan struct{})
		begun := make(chan struct{}, 10)
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { begun <- struct{}{}; <-stuck; return nil },
			&amqpflow.SubscribeOptions{Credit: 3}, &amqpflow.Options{Logger: book.logger()})
		p.awaitCode(wire.CodeFlow)
		l := p.link("orders", wire.RoleReceiver)
		p.deliverAnyway(l, data("x"), 50)
		<-sub.Done()
		require.ErrorIs(t, sub.Err(), amqpflow.ErrCreditExceeded)
		detach := p.awaitCode(wire.CodeDetach).perf.(*wire.Detach)
		require.NotNil(t, detach.Error)
		assert.Equal(t, wire.Symbol("amqp:link:transfer-limit-exceeded"), detach.Error.Condition)
		assert.True(t, detach.Closed)
		assert.LessOrEqual(t, sub.Stats().Received, uint64(3))
		require.ErrorContains(t, b.Ready(), `"orders"`)
		quiet()
		book.assertLine(t, "level=ERROR", "subscription ended", "address=orders")
		other := b.Subscribe("other", accepting)
		require.NoError(t, other.Attached(t.Context()), "the connection goes on")
		close(stuck)
		quiet()
		assert.LessOrEqual(t, len(begun), 1)
		assert.Len(t, p.sent(wire.CodeAttach), 2, "it is not re-attached")
		shutdown(t, b)
	})
}

// A peer that settles a delivery by itself: the handler's context ends, its
// outcome is lost, and the delivery's place in the window is free again.
func TestSubscription_peerTakesADeliveryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		results := make(chan error, 2)
		handled := make(chan string, 10)
		first := true
		p, b, sub := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			handled <- string(d.Data())
			if first {
				first = false
				<-ctx.Done()
				results <- context.Cause(ctx)
				results <- d.Accept(ctx)
			}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 3}, &amqpflow.Options{Logger: book.logger()})
		a := p.deliver("orders", data("a"))
		held := p.deliver("orders", data("held"))
		p.deliver("orders", data("c"))
		require.Equal(t, "a", <-handled)
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Disposition{Role: wire.RoleSender, First: a, Last: held, Settled: true, State: wire.State{Kind: wire.StateReleased}})
		require.ErrorIs(t, <-results, amqpflow.ErrLinkLost)
		err := <-results
		var failed *amqpflow.SettleError
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, amqpflow.ErrLinkLost)
		require.Equal(t, "c", <-handled, "the one that was held is dropped")
		for i := range 20 { // far more than the window
			p.deliver("orders", data(fmt.Sprint(i)))
			require.Equal(t, fmt.Sprint(i), <-handled)
		}
		assert.Equal(t, amqpflow.Attached, sub.State())
		book.assertLine(t, "level=WARN", "taken back", "address=orders")
		shutdown(t, b)
		for id, kinds := range p.outcomes() {
			assert.Len(t, kinds, 1, "delivery %d", id)
		}
	})
}
