package amqpflow_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// forced detaches a link as a broker does that is maintained.
func (p *peer) forced(l *peerLink, closing bool) {
	p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: closing, Error: &wire.Error{
		Condition: "amqp:link:detach-forced", Description: "idle for too long",
	}})
}

// A peer detaches a receiving and a sending link a thousand times: each is
// made again on the same connection, with fresh credit, and nothing is left
// behind. What was in flight is uncertain, once.
func TestFieldReport_B01_forceDetachedLinksAreMadeAgain(t *testing.T) {
	for _, closing := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed=%v", closing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost")
				handled := make(chan string, 1)
				sub := b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
					handled <- string(d.Data())
					return nil
				}, &amqpflow.SubscribeOptions{Credit: 10})
				other := b.Subscribe("other", accepting)
				p.connect(b)
				pub := b.Publisher()
				require.NoError(t, pub.Publish(t.Context(), "out", "first"))
				goroutines := 0
				for i := range 1000 {
					if i%10 == 0 { // one is in flight
						p.on(wire.CodeTransfer, func(frame) bool { return true })
						answer := start(t.Context(), pub, "out", "in flight")
						p.forced(p.link("out", wire.RoleSender), closing)
						require.ErrorIs(t, <-answer, amqpflow.ErrUncertain)
						p.on(wire.CodeTransfer, func(frame) bool { return false })
					} else {
						p.forced(p.link("out", wire.RoleSender), closing)
					}
					p.forced(p.link("orders", wire.RoleReceiver), closing)
					synctest.Wait()
					require.NoError(t, sub.Attached(t.Context()))
					l := p.link("orders", wire.RoleReceiver)
					p.until(func() bool { return l.limit == 10 }, "the whole window in the first flow")
					p.deliver("orders", data(fmt.Sprint(i)))
					require.Equal(t, fmt.Sprint(i), <-handled)
					require.NoError(t, pub.Publish(t.Context(), "out", "next"))
					if i == 10 {
						quiet()
						goroutines = runtime.NumGoroutine()
					}
				}
				quiet()
				assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
				assert.Len(t, p.sent(wire.CodeOpen), 1)
				assert.Equal(t, uint64(1000), sub.Stats().Reattached)
				assert.Zero(t, other.Stats().Reattached)
				assert.Len(t, p.sent(wire.CodeAttach), 3+2*1000)
				shutdown(t, b)
			})
		})
	}
}

// Peers with which nothing comes of any attempt: their number stays small, with
// the jitter that there is, and Close during a delay takes no time.
func TestFieldReport_B02_recoveryPausesBetweenAttempts(t *testing.T) {
	for name, tc := range map[string]struct {
		fail     func(*peers, *peer)
		attempts func(*peers, *peer) int
	}{
		"refuses TCP": {
			func(ps *peers, p *peer) { ps.refusing(errRefused); p.hangUp() },
			func(ps *peers, _ *peer) int { return len(ps.dialed()) - 1 },
		},
		"refuses the attach": {
			func(_ *peers, p *peer) {
				p.on(wire.CodeAttach, func(f frame) bool {
					p.refuse(f.channel, f.perf.(*wire.Attach), &wire.Error{Condition: "amqp:internal-error"})
					return true
				})
				p.forced(p.link("orders", wire.RoleReceiver), true)
			},
			func(_ *peers, p *peer) int { return len(p.sent(wire.CodeAttach)) - 1 },
		},
		"detaches after 10 ms": {
			func(_ *peers, p *peer) {
				p.on(wire.CodeAttach, func(f frame) bool {
					l := &peerLink{channel: f.channel, attach: *f.perf.(*wire.Attach)}
					time.AfterFunc(10*ms, func() { p.forced(l, true) })
					return false
				})
				p.forced(p.link("orders", wire.RoleReceiver), true)
			},
			func(_ *peers, p *peer) int { return len(p.sent(wire.CodeAttach)) - 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := newPeers(t, nil)
				b := amqpflow.New("amqp://localhost")
				sub := b.Subscribe("orders", accepting)
				p := ps.connect(b)
				tc.fail(ps, p)
				<-time.After(10 * time.Second)
				first := tc.attempts(ps, p)
				assert.GreaterOrEqual(t, first, 4)
				assert.LessOrEqual(t, first, 40, "of jittered delays, 51 s at most for the first nine")
				<-time.After(10 * time.Minute)
				later := tc.attempts(ps, p) - first
				assert.GreaterOrEqual(t, later, 15, "and they go on")
				assert.LessOrEqual(t, later, 120)
				started := time.Now()
				require.NoError(t, sub.Close(within(t, time.Second)))
				assert.Zero(t, time.Since(started))
				closed := len(p.sent(wire.CodeAttach))
				<-time.After(time.Minute)
				assert.Len(t, p.sent(wire.CodeAttach), closed, "what is closed is not tried again")
				shutdown(t, b)
			})
		})
	}
}

// A sending link that the peer detaches after each attach is not attached in a
// tight loop for a publish that waits for credit.
func TestFieldReport_B02_publishOverAFlappingLinkPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 0
		p.on(wire.CodeAttach, func(f frame) bool {
			l := &peerLink{channel: f.channel, attach: *f.perf.(*wire.Attach)}
			time.AfterFunc(ms, func() { p.forced(l, true) })
			return false
		})
		err := pub.Publish(within(t, time.Minute), "out", "x")
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		attaches := len(p.sent(wire.CodeAttach))
		assert.GreaterOrEqual(t, attaches, 6)
		assert.LessOrEqual(t, attaches, 60)
		shutdown(t, b)
	})
}

// Silence is a loss with a reason; a peer that only sends empty frames lives,
// and hears ours while a handler hangs.
func TestFieldReport_B05_silenceIsNoticedAndKeepalivesAreKept(t *testing.T) {
	watched := func(downs chan error) *amqpflow.Options {
		return &amqpflow.Options{IdleTimeout: 2 * time.Second, Observer: &amqpflow.Observer{
			Connection: func(up bool, err error) {
				if !up {
					downs <- err
				}
			},
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		downs := make(chan error, 100)
		ps := newPeers(t, nil)
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost", watched(downs)))
		sub := b.Subscribe("orders", accepting)
		ps.connect(b)
		started := time.Now()
		require.ErrorContains(t, <-downs, "silent for 2s")
		assert.LessOrEqual(t, time.Since(started), 2200*ms)
		synctest.Wait()
		assert.Equal(t, amqpflow.Attaching, sub.State())
		require.ErrorContains(t, sub.Err(), "silent")
		// None of the peers ever says more than it is asked, so each is lost in
		// turn, and the delays between them grow.
		<-time.After(2 * time.Minute)
		delays := ps.delays()
		for i, d := range delays {
			assert.InDelta(t, growing(i + 1)[i]+2100*ms, d, float64(200*ms))
		}
		assert.Greater(t, len(delays), 8)
		shutdown(t, b)
	})
	synctest.Test(t, func(t *testing.T) {
		downs := make(chan error, 100)
		p := newPeer(t)
		p.open.IdleTimeout = 1000
		b := amqpflow.New("amqp://localhost", watched(downs))
		b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error { <-time.After(10 * time.Second); return nil })
		p.connect(b)
		p.deliver("orders", data("x"))
		for range 34 { // 30 s
			<-time.After(900 * ms)
			p.raw([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		}
		assert.Empty(t, downs)
		p.mu.Lock()
		assert.GreaterOrEqual(t, p.empties, 29, "ours come, too, in time")
		p.mu.Unlock()
		shutdown(t, b)
	})
}

// A handler of a lost link that settles late, with the ids of deliveries that
// are fresh on the next link: nothing of theirs is touched.
func TestFieldReport_B14_staleSettlementHitsNoFreshDelivery(t *testing.T) {
	for name, lose := range map[string]func(*peer){
		"detach": func(p *peer) { p.forced(p.link("orders", wire.RoleReceiver), true) },
		"end":    func(p *peer) { p.send(p.link("orders", wire.RoleReceiver).channel, &wire.End{}) },
		"close":  func(p *peer) { p.send(0, &wire.Close{}) },
		"reset":  (*peer).hangUp,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := make(chan *amqpflow.Delivery, 6)
				release := make(chan struct{})
				ps := newPeers(t, nil)
				b := amqpflow.New("amqp://localhost")
				sub := b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
					held <- d
					<-release
					return nil
				}, &amqpflow.SubscribeOptions{Workers: 6})
				p := ps.connect(b)
				for range 3 {
					p.deliver("orders", data("x"))
				}
				quiet()
				lose(p)
				quiet()
				require.NoError(t, sub.Attached(t.Context()))
				next := ps.latest()
				before := len(next.sent(wire.CodeDisposition))
				for range 3 {
					next.deliver("orders", data("fresh"))
				}
				quiet()
				for range 3 {
					started := time.Now()
					require.ErrorIs(t, (<-held).Accept(ended()), amqpflow.ErrLinkLost)
					assert.Zero(t, time.Since(started))
				}
				quiet()
				assert.Len(t, next.sent(wire.CodeDisposition), before)
				for range 3 {
					d := <-held
					assert.Equal(t, "fresh", string(d.Data()))
					require.NoError(t, d.Accept(t.Context()))
				}
				close(release)
				quiet()
				assert.Equal(t, uint64(3), sub.Stats().Accepted)
				assert.Zero(t, sub.Stats().Running)
				shutdown(t, b)
			})
		})
	}
}

// The peer delivers again, on the next link, what was in memory when the
// connection went: what no handler had begun is seen once.
func TestFieldReport_B17_whatWasHeldIsSeenOnce(t *testing.T) {
	for _, workers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			seen := make(chan string, 200)
			ps := newPeers(t, nil)
			b := amqpflow.New("amqp://localhost")
			sub := b.Subscribe("orders", func(ctx context.Context, d *amqpflow.Delivery) error {
				seen <- string(d.Data())
				<-time.After(100 * ms) // all at once, so that none ends while its settlement may still wait for company
				return nil
			}, &amqpflow.SubscribeOptions{Credit: 50, Workers: workers})
			p := ps.connect(b)
			for i := range 50 {
				p.deliver("orders", data(fmt.Sprint(i)))
			}
			counts := map[string]int{}
			note := func() { counts[<-seen]++ }
			for range 3 + workers {
				note()
			}
			quiet() // what is settled has left
			p.hangUp()
			synctest.Wait()
			require.NoError(t, sub.Attached(t.Context()))
			settled := p.outcomes()
			next := ps.latest()
			for i := range 50 {
				if len(settled[uint32(i)]) == 0 {
					next.deliver("orders", data(fmt.Sprint(i)))
				}
				st := sub.Stats()
				assert.LessOrEqual(t, st.Held+st.Running, 50+workers)
			}
			<-time.After(time.Minute)
			for len(seen) > 0 {
				note()
			}
			twice := 0
			for i := range 50 {
				n := counts[fmt.Sprint(i)]
				assert.GreaterOrEqual(t, n, 1)
				twice += n - 1
			}
			assert.LessOrEqual(t, twice, workers)
			shutdown(t, b)
		})
	}
}
