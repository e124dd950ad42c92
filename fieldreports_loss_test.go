package amqpflow_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A flow that names a link and grants nothing: legal, useless, and in go-amqp
// the end of the process.
//
// Spec: 2.7.4.
func TestFieldReport_F13_flowWithoutCreditIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, accepting, nil)
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		for _, l := range []*peerLink{p.link("orders", wire.RoleReceiver), p.link("out", wire.RoleSender)} {
			p.send(l.channel, &wire.Flow{
				NextIncomingID: wire.Some(1), IncomingWindow: 100, OutgoingWindow: 100, Handle: wire.Some(l.attach.Handle),
			})
		}
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"), "the credit that it has stays")
		assert.Equal(t, amqpflow.Attached, sub.State())
		shutdown(t, b)
	})
}

// A disposition for every id there is: four thousand million turns of a loop
// in go-amqp.
func TestFieldReport_F12_dispositionOfEveryIDEndsTheConnectionAtOnce(t *testing.T) {
	for _, role := range []wire.Role{wire.RoleSender, wire.RoleReceiver} {
		synctest.Test(t, func(t *testing.T) {
			p, b, _ := serve(t, accepting, nil)
			require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
			for _, address := range []struct {
				name string
				role wire.Role
			}{{"orders", wire.RoleReceiver}, {"out", wire.RoleSender}} {
				p.send(p.link(address.name, address.role).channel, &wire.Disposition{Role: role, Last: 1<<32 - 1, Settled: true})
			}
			synctest.Wait()
			require.ErrorContains(t, b.Ready(), "disposition")
			shutdown(t, b)
			quiet()
			assertGone(t, p)
		})
	}
}

// Attaches that are slower than the contexts of those who wait for them: they
// are finished and used, never repeated or left behind.
func TestFieldReport_B09_givenUpAttachesLeaveNoOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.on(wire.CodeAttach, func(f frame) bool {
			time.AfterFunc(210*time.Millisecond, func() { p.answer(f) })
			return true
		})
		for i := range 200 {
			err := pub.Publish(within(t, 50*time.Millisecond), amqpflow.Address(strconv.Itoa(i/8)), "x")
			if err != nil {
				require.ErrorIs(t, err, amqpflow.ErrNotSent)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		require.NoError(t, pub.Publish(within(t, time.Second), "last", "x"))
		assert.Len(t, p.sent(wire.CodeAttach), 26, "one an address, however many gave up on it")
		assert.Len(t, p.sent(wire.CodeBegin), 1)
		names := map[string]bool{}
		for _, f := range p.sent(wire.CodeAttach) {
			name := f.perf.(*wire.Attach).Name
			assert.False(t, names[name], "a link name was used twice")
			names[name] = true
		}

		// Subscriptions that are closed while they attach.
		for range 20 {
			sub := b.Subscribe("in", accepting)
			require.ErrorIs(t, sub.Attached(within(t, 50*time.Millisecond)), context.DeadlineExceeded)
			_ = sub.Close(within(t, 50*time.Millisecond))
		}
		<-time.After(time.Second)
		last := b.Subscribe("in", accepting)
		require.NoError(t, last.Attached(within(t, time.Second)))
		assert.Len(t, p.sent(wire.CodeBegin), 1+20+1)
		assert.Len(t, p.sent(wire.CodeEnd), 20, "the late answers were answered")
		shutdown(t, b)
	})
}

// Every way to lose a delivery's link, and a settlement after it: an error at
// once, and nothing on the wire.
func TestFieldReport_B14_settlingAfterTheLossReturnsAtOnce(t *testing.T) {
	for name, lose := range map[string]func(*peer, *amqpflow.Broker, *amqpflow.Subscription){
		"detach": func(p *peer, _ *amqpflow.Broker, _ *amqpflow.Subscription) {
			l := p.link("orders", wire.RoleReceiver)
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		},
		"end": func(p *peer, _ *amqpflow.Broker, _ *amqpflow.Subscription) {
			p.send(p.link("orders", wire.RoleReceiver).channel, &wire.End{})
		},
		"close": func(p *peer, _ *amqpflow.Broker, _ *amqpflow.Subscription) { p.send(0, &wire.Close{}) },
		"reset": func(p *peer, _ *amqpflow.Broker, _ *amqpflow.Subscription) { p.hangUp() },
		"Close": func(_ *peer, _ *amqpflow.Broker, s *amqpflow.Subscription) { _ = s.Close(ended()) },
		"Shutdown": func(_ *peer, b *amqpflow.Broker, _ *amqpflow.Subscription) {
			_ = b.Shutdown(ended())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := make(chan *amqpflow.Delivery, 3)
				release := make(chan struct{})
				p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
					held <- d
					<-release
					return nil
				}, &amqpflow.SubscribeOptions{Workers: 3})
				for range 3 {
					p.deliver("orders", data("x"))
				}
				quiet()
				lose(p, b, sub)
				quiet()
				before := len(p.sent(wire.CodeDisposition))
				for _, ctx := range []context.Context{context.Background(), ended()} {
					started := time.Now()
					err := (<-held).Accept(ctx)
					assert.Zero(t, time.Since(started))
					require.ErrorIs(t, err, amqpflow.ErrLinkLost)
				}
				close(release)
				quiet()
				assert.Len(t, p.sent(wire.CodeDisposition), before, "nothing is settled that nobody holds")
				assert.Zero(t, sub.Stats().Running, "the slots are free")
				_ = b.Shutdown(within(t, time.Second))
			})
		})
	}
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// What is in memory when the connection goes is dropped: no handler begins
// with a delivery that it could not settle.
func TestFieldReport_B17_noHandlerBeginsAfterTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan context.Context, 50)
		p, b, sub := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error {
			begun <- ctx
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 50, Workers: 2})
		for range 50 {
			p.deliver("orders", data("x"))
		}
		<-begun
		<-begun
		last := <-begun
		p.hangUp()
		quiet()
		require.ErrorIs(t, context.Cause(last), amqpflow.ErrLinkLost)
		assert.LessOrEqual(t, len(begun), 1, "at most the other worker's")
		assert.Zero(t, sub.Stats().Held)
		_ = b.Shutdown(within(t, time.Second))
	})
}

// The connection goes while 100 messages are under way, one is half written
// and others wait for credit: each call ends once, with an answer that is true.
// What had not begun goes out on the next connection, and nothing twice.
func TestFieldReport_B43_connectionLostWhileWaitingForTheConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stored := map[string]int{}
		ps := newPeers(t, func(n int, p *peer) {
			p.open.MaxFrameSize = 512
			p.credit = 50
			if n > 0 {
				p.credit = 1000
			}
			p.on(wire.CodeTransfer, func(f frame) bool {
				sent := f.perf.(*wire.Transfer)
				if n == 0 && (sent.More || len(sent.Payload) > 400) {
					p.hangUp()
					return true
				}
				mu.Lock()
				stored[bodyOf(t, sent.Payload)]++
				mu.Unlock()
				return n == 0 && sent.DeliveryID.Value%3 != 0 // it has them all, and confirms a third
			})
		})
		b := amqpflow.New("amqp://localhost")
		ps.connect(b)
		answers := make(map[string]error)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				body := fmt.Sprint(i)
				receipt, err := b.Publisher().Send(t.Context(), amqpflow.Address(fmt.Sprint("q", i%2*i/99)), body,
					&amqpflow.PublishOptions{MessageID: body})
				if err == nil {
					err = receipt.Wait(t.Context())
					assert.Equal(t, err, receipt.Wait(t.Context()), "the answer stays")
				}
				mu.Lock()
				answers[body] = err
				mu.Unlock()
			})
		}
		quiet()
		err := b.Publisher().Publish(t.Context(), "large", make([]byte, 5000))
		require.ErrorIs(t, err, amqpflow.ErrUncertain, "half a message")
		wg.Wait()
		counts := map[string]int{}
		for body, err := range answers {
			if err == nil {
				counts["confirmed"]++
			} else {
				counts["uncertain"]++
				require.ErrorIs(t, err, amqpflow.ErrUncertain)
				require.NotErrorIs(t, err, amqpflow.ErrNotSent)
			}
			assert.Equal(t, 1, stored[body], "%s: %v", body, err)
		}
		assert.Len(t, answers, 100)
		assert.Greater(t, counts["confirmed"], 40, "those that waited for credit, too")
		assert.Greater(t, counts["uncertain"], 20)
		for body, err := range answers { // whoever sends again has the message-id to do it with
			if err != nil {
				require.NoError(t, b.Publisher().Publish(t.Context(), "q0", body, &amqpflow.PublishOptions{MessageID: body}))
			}
		}
		shutdown(t, b)
	})
}
