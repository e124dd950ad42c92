package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestBroker_recoversFromTheLossOfItsConnection(t *testing.T) {
	forced := &wire.Error{Condition: "amqp:connection:forced", Description: "maintenance"}
	for _, tc := range []struct {
		name string
		lose func(*peer)
		text string
	}{
		{"socket closed", (*peer).hangUp, ""},
		{"close with an error", func(p *peer) { p.send(0, &wire.Close{Error: forced}) }, "maintenance"},
		{"close without one", func(p *peer) { p.send(0, &wire.Close{}) }, ""},
		{"garbage", func(p *peer) { p.raw([]byte("\xff\xff\xff\xffgarbage")) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := newPeers(t, nil)
				book := new(logbook)
				ups, reports := make(chan error, 10), make(chan error, 10)
				states := make(chan string, 20)
				b := amqpflow.WithoutJitter(amqpflow.New("amqp://user:hunter2@localhost", &amqpflow.Options{
					Logger: book.logger(),
					Observer: &amqpflow.Observer{
						Connection: func(_ bool, err error) { ups <- err },
						Error:      func(err error) { reports <- err },
						State: func(s *amqpflow.Subscription, state amqpflow.State, err error) {
							if s.Address() == "busy" {
								states <- fmt.Sprint(state, " ", errors.Is(err, amqpflow.ErrLinkLost))
							}
						},
					},
				}))
				handlers, bodies := make(chan context.Context, 9), make(chan string, 9)
				goOn := make(chan struct{})
				busy := b.Subscribe("busy", func(ctx context.Context, d *amqpflow.Delivery) error {
					bodies <- string(d.Data())
					handlers <- ctx
					<-goOn
					return nil
				})
				idle := b.Subscribe("idle", accepting)
				p := ps.connect(b)
				require.NoError(t, <-ups)
				for _, body := range []string{"running", "held"} {
					p.deliver("busy", data(body))
				}
				ctx := <-handlers
				p.on(wire.CodeTransfer, func(frame) bool { tc.lose(p); return true })
				require.ErrorIs(t, b.Publisher().Publish(t.Context(), "out", "x"), amqpflow.ErrUncertain)
				quiet()

				require.ErrorIs(t, context.Cause(ctx), amqpflow.ErrLinkLost)
				for _, s := range []*amqpflow.Subscription{busy, idle} {
					assert.Equal(t, amqpflow.Attaching, s.State())
					require.ErrorIs(t, s.Err(), amqpflow.ErrLinkLost)
					assert.Zero(t, s.Stats().Held)
				}
				require.NoError(t, b.Err())
				require.ErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
				require.ErrorContains(t, b.Ready(), "connection lost")
				require.ErrorContains(t, b.Ready(), tc.text)
				require.Error(t, <-ups)
				assertGone(t, p)
				lost := time.Now()

				next := <-ps.came
				require.NoError(t, busy.Attached(t.Context()))
				require.NoError(t, idle.Attached(t.Context()))
				assert.LessOrEqual(t, time.Since(lost), 100*time.Millisecond, "the first delay")
				require.NoError(t, <-ups)
				require.NoError(t, b.Ready())
				next.deliver("busy", data("again"))
				quiet()
				assert.Equal(t, "running", <-bodies)
				assert.Empty(t, bodies, "one handler at a time, also across a reconnect")
				assert.Empty(t, next.outcomes())
				close(goOn)
				assert.Equal(t, "again", <-bodies)
				quiet()
				assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}}, next.outcomes(), "the stale outcome hit nothing")
				require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))

				assert.Empty(t, ups, "gone once, and back once")
				assert.Len(t, reports, 1, "the settlement that was lost")
				assert.Equal(t, uint64(1), busy.Stats().Reattached)
				book.assertLine(t, "level=WARN", "connection lost")
				book.assertLine(t, "level=INFO", "recovered", "peer=", "after=", "attempts=1")
				book.assertLine(t, "level=INFO", "recovered", "address=idle", "after=", "attempts=1")
				book.assertLine(t, "level=ERROR", "settlement lost", "address=busy")
				book.assertLine(t, "level=WARN", "publish uncertain", "address=out")
				assert.NotContains(t, book.String(), "hunter2")
				assert.NotContains(t, book.String(), `"link lost"`, "the connection's loss is told once")
				shutdown(t, b)
				close(states)
				var got []string
				for s := range states {
					got = append(got, s)
				}
				assert.Equal(t, []string{
					"attaching false", "attached false", "attaching true", "attached false", "draining false", "ended false",
				}, got)
			})
		})
	}
}

func TestBroker_silentPeerIsALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, nil)
		downs := make(chan error, 10)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: 10 * time.Second, Observer: &amqpflow.Observer{
			Connection: func(up bool, err error) {
				if !up {
					downs <- err
				}
			},
		}})
		p := ps.connect(b)
		started := time.Now()
		require.ErrorContains(t, <-downs, "silent")
		took := time.Since(started)
		assert.GreaterOrEqual(t, took, 10*time.Second)
		assert.LessOrEqual(t, took, 11*time.Second)
		<-ps.came
		synctest.Wait()
		require.NoError(t, b.Ready())
		shutdown(t, b)
		synctest.Wait()
		assertGone(t, p)
	})
	synctest.Test(t, func(t *testing.T) {
		_, b, _ := serve(t, accepting, nil, &amqpflow.Options{IdleTimeout: -1})
		<-time.After(24 * time.Hour)
		require.NoError(t, b.Ready(), "a negative value means for ever")
		shutdown(t, b)
	})
}
