package amqpflow_test

import (
	"context"
	"errors"
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

func TestPublisher_losesALinkOrItsSession(t *testing.T) {
	for _, tc := range []struct {
		name   string
		lose   func(*peer, frame)
		begins int
	}{
		{"closing detach", func(p *peer, f frame) {
			p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Transfer).Handle, Closed: true, Error: errDeleted})
		}, 1},
		{"non-closing detach", func(p *peer, f frame) {
			p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Transfer).Handle, Error: errDeleted})
		}, 1},
		{"detach without an error", func(p *peer, f frame) {
			p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Transfer).Handle, Closed: true})
		}, 1},
		{"end", func(p *peer, f frame) { p.send(f.channel, &wire.End{Error: errDeleted}) }, 2},
		{"end without an error", func(p *peer, f frame) { p.send(f.channel, &wire.End{}) }, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook)
				p, b, pub := publisher(t, &amqpflow.Options{Logger: book.logger()})
				require.NoError(t, pub.Publish(t.Context(), "out", "x"))
				require.NoError(t, pub.Publish(t.Context(), "other", "x"))
				p.on(wire.CodeTransfer, func(f frame) bool { tc.lose(p, f); return true })
				outstanding := start(t.Context(), pub, "out", "y")
				err := <-outstanding
				require.ErrorIs(t, err, amqpflow.ErrUncertain)
				require.NotErrorIs(t, err, amqpflow.ErrNotSent)
				p.on(wire.CodeTransfer, func(frame) bool { return false })
				require.NoError(t, pub.Publish(t.Context(), "out", "z"))
				require.NoError(t, pub.Publish(t.Context(), "other", "z"))
				quiet()
				assert.Len(t, p.sent(wire.CodeBegin), tc.begins)
				book.assertLine(t, "level=WARN", "link lost", "address=out")
				if tc.begins > 1 {
					book.assertLine(t, "level=WARN", "session lost")
				}
				require.NoError(t, b.Err())
				require.NoError(t, b.Ready())
				shutdown(t, b)
			})
		})
	}
}

func TestPublisher_lossBetweenTwoPublishesIsNotNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		for range 5 {
			require.NoError(t, pub.Publish(t.Context(), "out", "x"))
			l := p.link("out", wire.RoleSender)
			p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
			quiet()
			require.NoError(t, pub.Publish(t.Context(), "out", "x"))
			p.send(p.link("out", wire.RoleSender).channel, &wire.End{})
			quiet()
		}
		shutdown(t, b)
	})
}

// What waits for credit when its link is lost has not been sent: it waits on,
// and goes out on the next link, in order.
func TestPublisher_waitingPublishOfALostLinkTakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 1
		require.NoError(t, pub.Publish(t.Context(), "out", "0"))
		answers := make([]<-chan error, 4)
		for i := range answers {
			answers[i] = start(t.Context(), pub, "out", fmt.Sprint(i+1))
			synctest.Wait()
		}
		p.credit = 100
		l := p.link("out", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: errDeleted})
		for _, answer := range answers {
			require.NoError(t, <-answer)
		}
		var bodies []string
		for _, f := range p.sent(wire.CodeTransfer) {
			bodies = append(bodies, bodyOf(t, f.perf.(*wire.Transfer).Payload))
		}
		assert.Equal(t, []string{"0", "1", "2", "3", "4"}, bodies)
		assert.Len(t, p.sent(wire.CodeAttach), 2)
		shutdown(t, b)
	})
}

// Where the next link is refused, those who waited share that answer.
func TestPublisher_waitingPublishesShareTheRefusalOfTheNextLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 1
		require.NoError(t, pub.Publish(t.Context(), "out", "0"))
		answers := make([]<-chan error, 4)
		for i := range answers {
			answers[i] = start(t.Context(), pub, "out", fmt.Sprint(i+1))
			synctest.Wait()
		}
		p.on(wire.CodeAttach, func(f frame) bool {
			p.refuse(f.channel, f.perf.(*wire.Attach), &wire.Error{Condition: "amqp:not-found"})
			return true
		})
		l := p.link("out", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: errDeleted})
		for _, answer := range answers {
			err := <-answer
			var refused *amqpflow.AttachError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, amqpflow.ErrNotSent)
		}
		assert.Len(t, p.sent(wire.CodeAttach), 2, "one attempt for all")
		p.on(wire.CodeAttach, func(frame) bool { return false })
		require.NoError(t, pub.Publish(t.Context(), "out", "x"), "the next publish tries again")
		shutdown(t, b)
	})
}

func TestPublisher_contextStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 1 << 20
		p.on(wire.CodeTransfer, func(f frame) bool {
			id := f.perf.(*wire.Transfer).DeliveryID.Value
			time.AfterFunc(time.Duration(id%7)*100*time.Microsecond, func() {
				p.settle(f.channel, id, wire.State{Kind: wire.StateAccepted})
			})
			return true
		})
		var wg sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]error{}
		for g := range 8 {
			wg.Go(func() {
				for i := range 100 {
					body := fmt.Sprintf("%d-%d", g, i)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration((g*7+i*13)%20)*100*time.Microsecond)
					err := pub.Publish(ctx, amqpflow.Address(strconv.Itoa(g%3)), body)
					cancel()
					mu.Lock()
					answers[body] = err
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		quiet()
		sent := map[string]bool{}
		for _, f := range p.sent(wire.CodeTransfer) {
			body := bodyOf(t, f.perf.(*wire.Transfer).Payload)
			assert.False(t, sent[body], "%s was sent twice", body)
			sent[body] = true
		}
		confirmed := 0
		for body, err := range answers {
			switch {
			case err == nil:
				confirmed++
				assert.True(t, sent[body], "%s: confirmed and not sent", body)
			case errors.Is(err, amqpflow.ErrNotSent):
				assert.False(t, sent[body], "%s: %v, and sent", body, err)
			case errors.Is(err, amqpflow.ErrUncertain):
				assert.True(t, sent[body], "%s: %v, and not sent", body, err)
			default:
				t.Errorf("%s: %v", body, err)
			}
		}
		assert.NotZero(t, confirmed)
		assert.Less(t, confirmed, 800)
		require.NoError(t, b.Ready())
		shutdown(t, b)
	})
}

// A publish that waits before it attaches again has nothing to wait for once the
// broker shuts down, on whatever is left of its connection.
func TestPublisher_shutdownEndsTheDelayBeforeAnotherLink(t *testing.T) {
	for name, lost := range map[string]bool{"connection lost": true, "connection open": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, pub := publisher(t, &amqpflow.Options{IdleTimeout: -1})
				amqpflow.WithoutJitter(b)
				p.credit = 0
				p.on(wire.CodeAttach, func(f frame) bool {
					a := f.perf.(*wire.Attach)
					p.answerAttach(f.channel, a)
					p.send(f.channel, &wire.Detach{Handle: a.Handle, Closed: true})
					return true
				})
				first, second := start(t.Context(), pub, "out", "x"), start(t.Context(), pub, "out", "y")
				<-time.After(40 * time.Second) // the delay is 25.6 s
				if lost {
					p.hangUp()
					quiet()
				}
				started := time.Now()
				shutdown(t, b)
				assert.Less(t, time.Since(started), time.Second)
				for _, answer := range []<-chan error{first, second} {
					err := <-answer
					require.ErrorIs(t, err, amqpflow.ErrNotConnected)
					require.ErrorIs(t, err, amqpflow.ErrNotSent)
					require.NotErrorIs(t, err, amqpflow.ErrUncertain)
				}
			})
		})
	}
}

func TestPublisher_shutdownWaitsForPublishesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.mute(wire.CodeTransfer)
		under := start(t.Context(), pub, "out", "x")
		f := p.awaitCode(wire.CodeTransfer)
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(within(t, 10*time.Second)) }()
		quiet()
		assert.Empty(t, ended)
		p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
		require.NoError(t, <-under)
		require.NoError(t, <-ended)
	})
	synctest.Test(t, func(t *testing.T) { // one that nobody answers is uncertain
		p, b, pub := publisher(t)
		p.mute(wire.CodeTransfer)
		under := start(t.Context(), pub, "out", "x")
		started := time.Now()
		require.Error(t, b.Shutdown(within(t, 2*time.Second)))
		assertWithin(t, started, 2*time.Second)
		require.ErrorIs(t, <-under, amqpflow.ErrUncertain)
	})
}
