package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

var errRefused = errors.New("connection refused")

const ms = time.Millisecond

// growing is the delays before n attempts, the first included.
func growing(n int) (delays []time.Duration) {
	for d := 100 * ms; n > 0; n-- {
		delays = append(delays, min(d, 30*time.Second))
		d *= 2
	}
	return delays
}

func TestBroker_dialsWithGrowingDelaysUntilThePeerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, nil)
		book := new(logbook)
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost", &amqpflow.Options{Logger: book.logger()}))
		handled := make(chan time.Time, 1)
		b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error { handled <- time.Now(); return nil })
		p := ps.connect(b)
		ps.refusing(errRefused)
		p.hangUp()
		lost := time.Now()
		<-time.After(10 * time.Minute)
		delays := append([]time.Duration{ps.dialed()[1].Sub(lost)}, ps.delays()[1:]...)
		assert.Equal(t, growing(len(delays)), delays)
		assert.Greater(t, len(delays), 20, "there is no last attempt")
		require.ErrorIs(t, b.Ready(), errRefused)
		require.NoError(t, b.Err())
		book.assertLine(t, "level=WARN", "connect failed", "attempt=2", "delay=200ms", "connection refused")

		ps.refusing(nil)
		next := <-ps.came
		accepting := time.Now()
		next.awaitCode(wire.CodeFlow)
		next.deliver("orders", data("x"))
		assert.LessOrEqual(t, (<-handled).Sub(accepting), time.Second)
		quiet()
		book.assertLine(t, "level=INFO", "recovered", "peer=", fmt.Sprintf("attempts=%d", len(delays)+1))
		shutdown(t, b)
	})
}

// A peer that accepts the connection and drops it again is no healthy one.
func TestBroker_delaysGrowWhileConnectionsComeToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flaky atomic.Bool
		flaky.Store(true)
		ps := newPeers(t, nil)
		ps.setup = func(n int, p *peer) {
			if n > 0 && flaky.Load() {
				time.AfterFunc(10*ms, p.hangUp)
			}
		}
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost"))
		sub := b.Subscribe("orders", accepting)
		p := ps.connect(b)
		<-time.After(10 * time.Second)
		p.hangUp()
		<-time.After(2 * time.Minute)
		for i, d := range ps.delays()[1:] {
			assert.Equal(t, growing(i + 2)[i+1]+10*ms, d)
		}
		flaky.Store(false)
		<-time.After(time.Minute)
		require.NoError(t, sub.Attached(t.Context()))
		<-time.After(10 * time.Second)
		before := len(ps.dialed())
		ps.latest().hangUp()
		lost := time.Now()
		<-time.After(time.Second)
		require.Len(t, ps.dialed(), before+1)
		assert.Equal(t, 100*ms, ps.dialed()[before].Sub(lost), "10 s of health make the delay short again")
		shutdown(t, b)
	})
}

func TestSubscription_delaysGrowWhileLinksComeToNothing(t *testing.T) {
	for name, answer := range map[string]func(*peer, frame){
		"refused": func(p *peer, f frame) {
			p.refuse(f.channel, f.perf.(*wire.Attach), &wire.Error{Condition: "amqp:internal-error"})
		},
		"detached after the attach": func(p *peer, f frame) {
			p.answer(f)
			time.AfterFunc(10*ms, func() {
				p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Attach).Handle, Closed: true, Error: errDeleted})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost"))
				sub := b.Subscribe("orders", accepting)
				p.connect(b)
				p.on(wire.CodeAttach, func(f frame) bool { answer(p, f); return true })
				l := p.link("orders", wire.RoleReceiver)
				<-time.After(10 * time.Second)
				p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
				<-time.After(5 * time.Minute)
				attaches := p.sent(wire.CodeAttach)[1:]
				require.Greater(t, len(attaches), 10)
				for i := range attaches[1:] {
					assert.InDelta(t, growing(i + 2)[i+1], attaches[i+1].at.Sub(attaches[i].at), float64(11*ms))
				}
				assert.Len(t, p.sent(wire.CodeOpen), 1, "the connection is another matter")
				p.on(wire.CodeAttach, func(frame) bool { return false })
				<-time.After(time.Minute)
				require.NoError(t, sub.Attached(t.Context()))
				p.deliver("orders", data("x"))
				quiet()
				l = p.link("orders", wire.RoleReceiver)
				lost := time.Now()
				p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
				<-time.After(time.Second)
				require.NoError(t, sub.Attached(t.Context()))
				attaches = p.sent(wire.CodeAttach)
				assert.Equal(t, 100*ms, attaches[len(attaches)-1].at.Sub(lost), "a delivery makes the delay short again")
				shutdown(t, b)
			})
		})
	}
}

// What waiting does not heal is tried rarely, and told each time.
func TestSubscription_whatWillNotHealWaitsAtTheCap(t *testing.T) {
	for _, cond := range []string{"amqp:unauthorized-access", "amqp:not-found", "amqp:not-allowed"} {
		t.Run(cond, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reports, states := make(chan error, 10), make(chan error, 10)
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{
					Error: func(err error) { reports <- err },
					State: func(s *amqpflow.Subscription, state amqpflow.State, err error) {
						if state == amqpflow.Attaching && err != nil {
							states <- err
						}
					},
				}})
				other := b.Subscribe("other", accepting)
				p.connect(b)
				p.on(wire.CodeAttach, func(f frame) bool {
					a := f.perf.(*wire.Attach)
					if a.Source.Address != "orders" {
						return false
					}
					p.refuse(f.channel, a, &wire.Error{Condition: wire.Symbol(cond)})
					return true
				})
				sub := b.Subscribe("orders", accepting)
				var refused *amqpflow.AttachError
				require.ErrorAs(t, sub.Attached(t.Context()), &refused)
				<-time.After(100 * time.Second)
				attaches := p.sent(wire.CodeAttach)[1:]
				require.Len(t, attaches, 4)
				for i := range attaches[1:] {
					assert.Equal(t, 30*time.Second, attaches[i+1].at.Sub(attaches[i].at))
				}
				for _, told := range []chan error{reports, states} {
					require.Len(t, told, 4)
					require.ErrorAs(t, <-told, &refused)
				}
				require.ErrorAs(t, sub.Err(), &refused)
				require.ErrorAs(t, b.Ready(), &refused)
				assert.Equal(t, amqpflow.Attached, other.State())
				p.on(wire.CodeAttach, func(frame) bool { return false })
				<-time.After(30 * time.Second)
				require.NoError(t, b.Ready(), "somebody has repaired it")
				shutdown(t, b)
			})
		})
	}
}

func TestPublisher_waitsForTheConnectionInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, nil)
		b := amqpflow.New("amqp://localhost")
		p := ps.connect(b)
		pub := b.Publisher()
		ps.refusing(errRefused)
		p.hangUp()
		quiet()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if i%2 == 0 {
					assert.NoError(t, pub.Publish(t.Context(), "out", fmt.Sprint(i)))
					return
				}
				r, err := pub.Send(t.Context(), "out", fmt.Sprint(i))
				if assert.NoError(t, err) {
					assert.NoError(t, r.Wait(t.Context()))
				}
			})
			synctest.Wait() // the next one comes later
		}
		started := time.Now()
		err := pub.Publish(within(t, time.Second), "elsewhere", "x")
		assert.Equal(t, time.Second, time.Since(started))
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		err = pub.Publish(within(t, time.Second), "out", "behind the others")
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ps.refusing(nil)
		next := <-ps.came
		wg.Wait()
		for i, f := range next.sent(wire.CodeTransfer) {
			assert.Equal(t, fmt.Sprint(i), bodyOf(t, f.perf.(*wire.Transfer).Payload))
		}
		assert.Len(t, next.sent(wire.CodeTransfer), 100)
		shutdown(t, b)
	})
}

func TestPublisher_boundsThoseThatWaitForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, nil)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxPending: 3})
		p := ps.connect(b)
		ps.refusing(errRefused)
		p.hangUp()
		quiet()
		var waiting []<-chan error
		for i := range 3 {
			waiting = append(waiting, start(t.Context(), b.Publisher(), amqpflow.Queue(fmt.Sprint(i)), "x"))
		}
		quiet()
		for range 2 {
			started := time.Now()
			err := b.Publisher().Publish(t.Context(), "out", "x")
			assert.Zero(t, time.Since(started))
			require.ErrorIs(t, err, amqpflow.ErrNotConnected)
			require.ErrorIs(t, err, amqpflow.ErrNotSent)
		}
		ps.refusing(nil)
		for _, answer := range waiting {
			require.NoError(t, <-answer)
		}
		(<-ps.came).hangUp()
		quiet()
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"), "there is room again")
		shutdown(t, b)
	})
}

func TestPublisher_failFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, func(_ int, p *peer) { p.credit = 1 })
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{FailFastPublish: true})
		p := ps.connect(b)
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		waiting := start(t.Context(), b.Publisher(), "out", "x") // for credit
		quiet()
		p.hangUp()
		synctest.Wait()
		err := b.Publisher().Publish(t.Context(), "out", "x")
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
		require.ErrorIs(t, <-waiting, amqpflow.ErrNotSent)
		<-ps.came
		synctest.Wait()
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		shutdown(t, b)
	})
}

// Shutdown while the broker dials, authenticates, opens, or waits for the next
// attempt: it takes no time, and answers who waits.
func TestBroker_shutdownEndsEveryAttemptToRecover(t *testing.T) {
	for name, setup := range map[string]func(*peers, *peer){
		"in backoff": func(ps *peers, p *peer) { p.hangUp(); ps.refuse = errRefused },
		"at SASL":    func(_ *peers, p *peer) { p.mute(wire.CodeSASLInit) },
		"at open":    func(_ *peers, p *peer) { p.mute(wire.CodeOpen) },
		"at begin":   func(_ *peers, p *peer) { p.mute(wire.CodeBegin) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := newPeers(t, nil)
				b := amqpflow.New("amqp://localhost")
				sub := b.Subscribe("orders", accepting)
				p := ps.connect(b)
				ps.setup = func(_ int, p *peer) { setup(ps, p) }
				p.hangUp()
				<-time.After(20 * time.Second)
				waiting := start(t.Context(), b.Publisher(), "out", "x")
				quiet()
				started := time.Now()
				require.NoError(t, b.Shutdown(within(t, time.Second)))
				assert.Zero(t, time.Since(started))
				err := <-waiting
				require.ErrorIs(t, err, amqpflow.ErrNotConnected)
				require.ErrorIs(t, err, amqpflow.ErrShutdown)
				<-sub.Done()
				<-b.Done()
				require.NoError(t, b.Err())
				require.NoError(t, sub.Err())
				dials := ps.dialed()
				<-time.After(time.Hour)
				assert.Equal(t, dials, ps.dialed())
			})
		})
	}
}

// Close of a subscription in every state of its recovery takes no time.
func TestSubscription_closeEndsEveryAttemptToRecover(t *testing.T) {
	for name, lose := range map[string]func(*peers, *peer){
		"connection in backoff": func(ps *peers, p *peer) { ps.refusing(errRefused); p.hangUp() },
		"attach unanswered": func(_ *peers, p *peer) {
			p.mute(wire.CodeAttach)
			p.send(p.link("orders", wire.RoleReceiver).channel, &wire.End{})
		},
		"begin unanswered": func(_ *peers, p *peer) {
			p.mute(wire.CodeBegin)
			p.send(p.link("orders", wire.RoleReceiver).channel, &wire.End{})
		},
		"link in backoff": func(_ *peers, p *peer) {
			p.on(wire.CodeAttach, func(f frame) bool {
				p.refuse(f.channel, f.perf.(*wire.Attach), errDeleted)
				return true
			})
			p.send(p.link("orders", wire.RoleReceiver).channel, &wire.End{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := newPeers(t, nil)
				b := amqpflow.New("amqp://localhost")
				sub := b.Subscribe("orders", accepting)
				p := ps.connect(b)
				lose(ps, p)
				<-time.After(20 * time.Second)
				assert.Equal(t, amqpflow.Attaching, sub.State())
				started := time.Now()
				require.NoError(t, sub.Close(within(t, time.Second)))
				assert.Zero(t, time.Since(started))
				assert.Equal(t, amqpflow.Ended, sub.State())
				attaches := len(p.sent(wire.CodeAttach))
				<-time.After(time.Minute)
				assert.Len(t, p.sent(wire.CodeAttach), attaches)
				_ = b.Shutdown(within(t, time.Second))
			})
		})
	}
}

func TestBroker_connectRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, func(n int, p *peer) {
			if n == 0 {
				p.on(wire.CodeAttach, func(f frame) bool {
					p.refuse(f.channel, f.perf.(*wire.Attach), errDeleted)
					return true
				})
			}
		})
		ps.refusing(errRefused)
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost", &amqpflow.Options{ConnectRetry: true, DialContext: ps.dialTCP}))
		sub := b.Subscribe("orders", accepting)
		started := time.Now()
		err := b.Connect(within(t, 5*time.Second))
		assert.Equal(t, 5*time.Second, time.Since(started))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errRefused, "why it was of no use")
		assert.Equal(t, growing(5), ps.delays())
		assert.Equal(t, amqpflow.Registered, sub.State())

		connected := make(chan error, 1)
		go func() { connected <- b.Connect(t.Context()) }()
		<-time.After(time.Second)
		ps.refusing(nil)
		require.NoError(t, <-connected)
		assert.Len(t, ps.came, 2, "the refused attach was tried again, too")
		require.NoError(t, b.Ready())
		shutdown(t, b)
	})
	bad := amqpflow.New("nonsense", &amqpflow.Options{ConnectRetry: true})
	var failed *amqpflow.ConnectError
	require.ErrorAs(t, bad.Connect(context.Background()), &failed)
	assert.Equal(t, "parse", failed.Step)
}

func TestBroker_failover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, nil)
		var mu sync.Mutex
		up := map[string]bool{"two:5672": true}
		var asked []string
		tried := func(next ...string) []string {
			mu.Lock()
			defer mu.Unlock()
			before := asked
			clear(up)
			for _, addr := range next {
				up[addr] = true
			}
			asked = nil
			return before
		}
		b := amqpflow.New("amqp://u:secret1@one", &amqpflow.Options{
			FailoverURLs: []string{"amqp://u:secret2@two", "amqp://u:secret3@three:99"},
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				if asked = append(asked, addr); !up[addr] {
					return nil, errRefused
				}
				return ps.dial(ctx)
			},
		})
		require.NoError(t, b.Connect(t.Context()))
		assert.Equal(t, []string{"one:5672", "two:5672"}, tried("three:99"))
		p := <-ps.came
		assert.Equal(t, "\x00u\x00secret2", string(p.awaitCode(wire.CodeSASLInit).perf.(*wire.SASLInit).InitialResponse))
		p.hangUp()
		<-ps.came
		synctest.Wait()
		require.NoError(t, b.Ready())
		assert.Equal(t, []string{"one:5672", "two:5672", "three:99"}, tried("one:5672"))
		ps.latest().hangUp()
		<-ps.came
		assert.Equal(t, []string{"one:5672"}, tried(), "the URL itself comes first")
		shutdown(t, b)
	})
	synctest.Test(t, func(t *testing.T) { // one that hangs leaves time for the others
		ps := newPeers(t, nil)
		b := amqpflow.New("amqp://one", &amqpflow.Options{
			FailoverURLs: []string{"amqp://two"},
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				if addr == "one:5672" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ps.dial(ctx)
			},
		})
		started := time.Now()
		require.NoError(t, b.Connect(within(t, 10*time.Second)))
		assert.Equal(t, 5*time.Second, time.Since(started))
		shutdown(t, b)
	})
}

func TestBroker_badFailoverURLs(t *testing.T) {
	credentials := func(context.Context) (amqp.SASLType, error) { return amqp.SASLTypeAnonymous(), nil }
	for _, tc := range []struct {
		url      string
		failover []string
		creds    func(context.Context) (amqp.SASLType, error)
		field    string
	}{
		{"amqp://one", []string{"amqp://two", "two?secret"}, nil, "Options.FailoverURLs[1]"},
		{"amqp://one", []string{"amqp://two", "amqp://u:secret@three"}, nil, "Options.FailoverURLs[1]"},
		{"amqp://u:secret@one", []string{"amqp://two"}, nil, "Options.FailoverURLs[0]"},
		{"amqp://one", []string{"amqp://u:secret@two"}, credentials, "Options.FailoverURLs[0]"},
	} {
		b := amqpflow.New(tc.url, &amqpflow.Options{FailoverURLs: tc.failover, Credentials: tc.creds, DialContext: noDial(t)})
		err := b.Connect(context.Background())
		var wrong *amqpflow.OptionError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, tc.field, wrong.Field)
		assert.NotContains(t, err.Error(), "secret")
	}
}
