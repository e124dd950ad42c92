package amqpflow_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// channels are the sessions of the links in a role.
func (p *peer) channels(role wire.Role) map[uint16]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[uint16]int{}
	for _, l := range p.links {
		if l.attach.Role == role {
			found[l.channel]++
		}
	}
	return found
}

// begun is how many sessions the client began, and how many it ended.
func (p *peer) begun() (begins, ends int) {
	return len(p.sent(wire.CodeBegin)), len(p.sent(wire.CodeEnd))
}

func TestSessions_areSharedWithinThePeersLimit(t *testing.T) {
	for _, tc := range []struct {
		channelMax        uint16
		maxSessions, subs int
		sessions, most    int  // of the subscriptions, and links on one of them
		withPublisher     bool // they are on the publisher's session
	}{
		{channelMax: 100, subs: 20, sessions: 20, most: 1},
		{channelMax: 7, subs: 20, sessions: 6, most: 4},
		{channelMax: 100, maxSessions: 1, subs: 20, sessions: 1, most: 20, withPublisher: true},
		{channelMax: 0, subs: 20, sessions: 1, most: 20, withPublisher: true},
		{channelMax: 100, maxSessions: 2, subs: 20, sessions: 1, most: 20},
		{channelMax: 1, maxSessions: 50, subs: 20, sessions: 1, most: 20},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				p.open.ChannelMax = tc.channelMax
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: tc.maxSessions})
				var handled atomic.Int64
				for i := range tc.subs {
					b.Subscribe(amqpflow.Queue(fmt.Sprint(i)), func(context.Context, *amqpflow.Delivery) error {
						handled.Add(1)
						return nil
					})
				}
				p.connect(b)
				require.NoError(t, b.Ready())
				require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
				receivers := p.channels(wire.RoleReceiver)
				assert.Len(t, receivers, tc.sessions)
				for channel, n := range receivers {
					assert.LessOrEqual(t, n, tc.most)
					assert.Equal(t, tc.withPublisher, channel == p.link("out", wire.RoleSender).channel)
				}
				begins, ends := p.begun()
				assert.LessOrEqual(t, begins-ends, int(tc.channelMax)+1)
				for i := range tc.subs {
					p.deliver(fmt.Sprint(i), data("x"))
				}
				quiet()
				assert.Equal(t, int64(tc.subs), handled.Load())
				shutdown(t, b)
				begins, ends = p.begun()
				assert.Equal(t, begins, ends, "each ends with its last link")
			})
		})
	}
}

// A shared session lives until its last link has gone.
func TestSessions_endWithTheirLastLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: 2})
		one, two := b.Subscribe("one", accepting), b.Subscribe("two", accepting)
		p.connect(b)
		assert.Equal(t, p.link("one", wire.RoleReceiver).channel, p.link("two", wire.RoleReceiver).channel)
		require.NoError(t, one.Close(t.Context()))
		_, ends := p.begun()
		assert.Zero(t, ends)
		p.deliver("two", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		require.NoError(t, two.Close(t.Context()))
		_, ends = p.begun()
		assert.Equal(t, 1, ends)
		three := b.Subscribe("three", accepting)
		require.NoError(t, three.Attached(t.Context()))
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"), "the publisher's is another")
		shutdown(t, b)
	})
}

// A session that the peer ends takes the subscriptions on it, and no other.
func TestSessions_endOfASharedOneIsThatOfItsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: 2})
		one, two := b.Subscribe("one", accepting), b.Subscribe("two", accepting)
		p.connect(b)
		p.send(p.link("one", wire.RoleReceiver).channel, &wire.End{Error: &wire.Error{Condition: "acme:gone"}})
		synctest.Wait()
		require.ErrorIs(t, one.Err(), amqpflow.ErrLinkLost)
		require.ErrorIs(t, two.Err(), amqpflow.ErrLinkLost)
		require.NoError(t, one.Attached(t.Context()))
		require.NoError(t, two.Attached(t.Context()))
		begins, _ := p.begun()
		assert.Equal(t, 3, begins, "they share the next, too")
		require.NoError(t, b.Err())
		three := b.Subscribe("three", accepting)
		require.NoError(t, three.Attached(t.Context()), "there is a session for the next")
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		shutdown(t, b)
	})
}

func TestSessions_linkAboveTheHandleMaxIsAnAttachError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := amqptest.NewServer(&amqptest.Options{HandleMax: 3, ChannelMax: 1})
		b := amqpflow.New("amqp://localhost")
		require.NoError(t, s.Connect(t.Context(), b))
		subs := make([]*amqpflow.Subscription, 5)
		for i := range subs {
			subs[i] = b.Subscribe("orders", accepting)
			err := subs[i].Attached(t.Context())
			if i < 4 {
				require.NoError(t, err)
				continue
			}
			var failed *amqpflow.AttachError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, amqpflow.Address("orders"), failed.Address)
		}
		require.NoError(t, b.Err())
		require.NoError(t, b.Publisher().Publish(t.Context(), "other", "x"))
		shutdown(t, b)
		require.NoError(t, s.Close())
	})
}

// A publisher's session that the peer ends is replaced by the next publish, by
// one new session for all who publish at once, also where there may be no more
// than that one.
func TestSessions_lostOneOfThePublisherIsReplacedOnce(t *testing.T) {
	for _, maxSessions := range []int{1, 3, 0} {
		t.Run(fmt.Sprint(maxSessions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: maxSessions})
				sub := b.Subscribe("orders", accepting)
				p.connect(b)
				require.NoError(t, b.Publisher().Publish(t.Context(), "0", "x"))
				begins, _ := p.begun()
				p.send(p.link("0", wire.RoleSender).channel, &wire.End{Error: &wire.Error{Condition: "acme:gone"}})
				quiet()
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() {
						assert.NoError(t, b.Publisher().Publish(t.Context(), amqpflow.Queue(fmt.Sprint(i)), "x"))
					})
				}
				wg.Wait()
				after, _ := p.begun()
				assert.Equal(t, begins+1, after)
				if maxSessions == 1 {
					quiet()
					require.NoError(t, sub.Attached(t.Context()))
					p.send(p.link("1", wire.RoleSender).channel, &wire.End{})
					quiet()
					require.NoError(t, b.Subscribe("late", accepting).Attached(t.Context()), "it is replaced for a subscription, too")
				} else {
					assert.Equal(t, amqpflow.Attached, sub.State())
				}
				shutdown(t, b)
			})
		})
	}
}
