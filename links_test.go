package amqpflow_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestLinks_idleForFiveMinutesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		pub := b.Publisher()
		require.NoError(t, pub.Publish(t.Context(), "idle", "x"))
		require.NoError(t, pub.Publish(t.Context(), "used", "x"))
		for range 4 {
			<-time.After(time.Minute)
			require.NoError(t, pub.Publish(t.Context(), "used", "x"))
		}
		<-time.After(time.Minute - time.Millisecond)
		assert.NotContains(t, p.trace(), "detach sender idle", "five minutes are not over")
		<-time.After(time.Second)
		assert.Contains(t, p.trace(), "detach sender idle")
		assert.NotContains(t, p.trace(), "detach sender used")
		<-time.After(5 * time.Minute)
		assert.Contains(t, p.trace(), "detach sender used")
		assert.Len(t, p.sent(wire.CodeDetach), 2)
		require.NoError(t, pub.Publish(t.Context(), "idle", "x"), "the next publish attaches it again")
		assert.Len(t, p.sent(wire.CodeAttach), 3)
		shutdown(t, b)
	})
}

// A link whose Send has no outcome yet is not idle.
func TestLinks_unconfirmedSendKeepsItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		p.mute(wire.CodeTransfer)
		r := send(t, b, "out", "x")
		<-time.After(20 * time.Minute)
		assert.Empty(t, p.sent(wire.CodeDetach))
		p.settle(p.link("out", wire.RoleSender).channel, 0, stateOK)
		require.NoError(t, r.Wait(t.Context()))
		<-time.After(10 * time.Minute)
		assert.Len(t, p.sent(wire.CodeDetach), 1)
		shutdown(t, b)
	})
}

// A Publish whose context has ended waits for nothing more, but its message does.
func TestLinks_unansweredPublishKeepsItsLink(t *testing.T) {
	for name, inNeed := range map[string]bool{"idle": false, "another wants its place": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				p.on(wire.CodeBegin, func(f frame) bool { // there is room for one link
					p.send(f.channel, &wire.Begin{RemoteChannel: wire.Some(uint32(f.channel)), IncomingWindow: 100, OutgoingWindow: 100})
					return true
				})
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
				p.connect(b)
				p.mute(wire.CodeTransfer)
				require.ErrorIs(t, b.Publisher().Publish(within(t, time.Second), "out", "x"), amqpflow.ErrUncertain)
				other := make(chan error, 1)
				if inNeed {
					go func() { other <- b.Publisher().Publish(within(t, time.Hour), "other", "x") }()
				}
				<-time.After(20 * time.Minute)
				assert.Empty(t, p.sent(wire.CodeDetach))
				p.on(wire.CodeTransfer, func(frame) bool { return false })
				p.settle(p.link("out", wire.RoleSender).channel, 0, stateOK)
				if inNeed {
					require.NoError(t, <-other)
				} else {
					<-time.After(10 * time.Minute)
				}
				assert.Len(t, p.sent(wire.CodeDetach), 1)
				shutdown(t, b)
			})
		})
	}
}

// Who leaves before its link is begun to be attached leaves nothing attached
// either: half of these do.
func TestLinks_evictedGoesWhoeverTakesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, more = 200, 20
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		for i := range most {
			require.NoError(t, b.Publisher().Publish(t.Context(), amqpflow.Queue(fmt.Sprint(i)), "x"))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range more {
			quiet() // those that have no link are used later than those that have one
			require.ErrorIs(t, b.Publisher().Publish(ended, amqpflow.Queue(fmt.Sprint("more ", i)), "x"), amqpflow.ErrNotSent)
		}
		quiet()
		assert.Len(t, p.sent(wire.CodeDetach), more)
		shutdown(t, b)
	})
}

func TestLinks_leastRecentlyUsedGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 200
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		publish := func(i int) {
			require.NoError(t, b.Publisher().Publish(t.Context(), amqpflow.Queue(fmt.Sprint(i)), "x"))
			<-time.After(time.Millisecond)
		}
		for i := range most {
			publish(i)
		}
		publish(0) // now 1 is the oldest
		assert.Empty(t, p.sent(wire.CodeDetach))
		detached := make(chan string, 10)
		p.on(wire.CodeDetach, func(f frame) bool { // handles are used again: ask before that
			p.mu.Lock()
			defer p.mu.Unlock()
			detached <- p.nameLocked(f.channel, f.perf.(*wire.Detach).Handle)
			return false
		})
		publish(most)
		assert.Equal(t, "sender 1", <-detached)
		publish(most + 1)
		assert.Equal(t, "sender 2", <-detached)
		assert.Len(t, p.sent(wire.CodeAttach), most+2)
		p.on(wire.CodeDetach, func(frame) bool { return false })
		shutdown(t, b)
	})
}

// While every link has something under way there is none to close; a peer with
// room for no more must not be asked for more.
func TestLinks_burstToMoreAddressesThanLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addresses = 300
		p := newPeer(t) // its handle-max is 255
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		p.on(wire.CodeTransfer, func(f frame) bool { // the outcomes come late
			time.AfterFunc(time.Second, func() { p.answer(f) })
			return true
		})
		var wg sync.WaitGroup
		for i := range addresses {
			wg.Go(func() {
				r, err := b.Publisher().Send(t.Context(), amqpflow.Queue(fmt.Sprint(i)), "x")
				if assert.NoError(t, err) {
					assert.NoError(t, r.Wait(t.Context()))
				}
			})
		}
		wg.Wait()
		assert.Len(t, p.sent(wire.CodeTransfer), addresses)
		shutdown(t, b)
	})
}

// A publish that finds no room, and no link to close, waits within its context
// and not beyond Shutdown.
func TestLinks_noRoomEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 256
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		p.mute(wire.CodeTransfer)
		for i := range room {
			send(t, b, amqpflow.Queue(fmt.Sprint(i)), "x")
		}
		started := time.Now()
		_, err := b.Publisher().Send(within(t, time.Second), "late", "x")
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(started))
		p.settle(0, 7, stateOK)
		synctest.Wait()
		_, err = b.Publisher().Send(within(t, time.Second), "late", "x")
		require.NoError(t, err, "a link has gone for it")
		_, err = b.Publisher().Send(within(t, time.Second), "later", "x")
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		started = time.Now()
		require.Error(t, b.Shutdown(within(t, 2*time.Second)), "the outcomes do not come")
		assertWithin(t, started, 2*time.Second)
	})
}

// harsh is a peer of an unknown product that refuses the attaches to "bad" by
// ending their session, as older RabbitMQ does, once refusing is true.
func harsh(t *testing.T, refusing *atomic.Bool) *peer {
	p := newPeer(t)
	p.open.Properties = nil
	p.on(wire.CodeAttach, func(f frame) bool {
		a := f.perf.(*wire.Attach)
		if !refusing.Load() || a.Role != wire.RoleSender || a.Target.Address != "bad" {
			return false
		}
		p.send(f.channel, &wire.End{Error: &wire.Error{Condition: "amqp:not-found", Description: "no exchange 'bad'"}})
		return true
	})
	return p
}

func TestLinks_refusalThatEndsTheSessionHarmsNoOtherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusing atomic.Bool
		refusing.Store(true)
		p := harsh(t, &refusing)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		sub := b.Subscribe("orders", accepting)
		p.connect(b)
		harmless(t, b, 16, 50, 10, func(i int) amqpflow.Address { return amqpflow.Queue(fmt.Sprint(i)) }, "bad")
		err := b.Publisher().Publish(t.Context(), "bad", "x")
		var remote *amqp.Error
		require.ErrorAs(t, err, &remote)
		assert.Equal(t, amqp.ErrCond("amqp:not-found"), remote.Condition)
		assert.Len(t, p.sent(wire.CodeTransfer), 16*50, "each message once")
		assert.Equal(t, amqpflow.Attached, sub.State())
		require.NoError(t, b.Ready())
		shutdown(t, b)
		begins, ends := p.begun()
		assert.Equal(t, begins, ends, "every session is ended, probes included")
	})
}

// An address that attached once and is refused later still harms none: it has
// been moved away, or its next attach is alone.
func TestLinks_refusalAfterASuccessfulAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusing atomic.Bool
		p := harsh(t, &refusing)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
		p.connect(b)
		require.NoError(t, b.Publisher().Publish(t.Context(), "bad", "x"))
		require.NoError(t, b.Publisher().Publish(t.Context(), "good", "x"))
		l := p.link("bad", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: &wire.Error{Condition: "amqp:resource-deleted"}})
		quiet()
		refusing.Store(true)
		good := p.link("good", wire.RoleSender)
		p.mute(wire.CodeTransfer)
		r := send(t, b, "good", "under way")
		for range 3 {
			require.ErrorIs(t, b.Publisher().Publish(t.Context(), "bad", "x"), amqpflow.ErrNotSent)
		}
		quiet()
		require.False(t, known(r), "the other's message is not lost")
		p.settle(good.channel, p.sent(wire.CodeTransfer)[2].perf.(*wire.Transfer).DeliveryID.Value, stateOK)
		require.NoError(t, r.Wait(t.Context()))
		shutdown(t, b)
	})
}

// Where the probe's session is one too many the attach itself has to tell.
func TestLinks_publishOnAPeerWithOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.open.ChannelMax, p.open.Properties = 0, nil
		b := amqpflow.New("amqp://localhost")
		b.Subscribe("orders", accepting)
		p.connect(b)
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		shutdown(t, b)
		begins, _ := p.begun()
		assert.Equal(t, 1, begins)
	})
}
