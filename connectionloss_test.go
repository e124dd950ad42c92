package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestBroker_endsWithItsConnection(t *testing.T) {
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
				p := newPeer(t)
				book := new(logbook)
				ups, reports := make(chan error, 10), make(chan error, 10)
				b := amqpflow.New("amqp://user:hunter2@localhost", &amqpflow.Options{
					Logger: book.logger(),
					Observer: &amqpflow.Observer{
						Connection: func(up bool, err error) { assert.Equal(t, up, err == nil); ups <- err },
						Error:      func(err error) { reports <- err },
					},
				})
				handlers := make(chan context.Context, 1)
				goOn := make(chan struct{})
				busy := b.Subscribe("busy", func(ctx context.Context, d *amqpflow.Delivery) error {
					handlers <- ctx
					<-goOn
					return nil
				})
				idle := b.Subscribe("idle", accepting)
				p.connect(b)
				require.NoError(t, <-ups)
				p.deliver("busy", data("x"))
				ctx := <-handlers
				p.on(wire.CodeTransfer, func(frame) bool { tc.lose(p); return true })
				ran, published := make(chan error, 1), make(chan error, 1)
				go func() { ran <- b.Run(t.Context()) }()
				go func() { published <- b.Publisher().Publish(t.Context(), "out", "x") }()

				require.ErrorIs(t, <-published, amqpflow.ErrUncertain)
				<-b.Done()
				require.Error(t, b.Err())
				for _, s := range []*amqpflow.Subscription{busy, idle} {
					<-s.Done()
					assert.Equal(t, amqpflow.Ended, s.State())
					require.ErrorIs(t, s.Err(), amqpflow.ErrLinkLost)
				}
				require.ErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), amqpflow.ErrLinkLost)
				require.ErrorIs(t, b.Publisher().Publish(t.Context(), "out", "x"), amqpflow.ErrNotConnected)
				require.Error(t, <-ups)
				close(goOn)
				require.Equal(t, b.Err(), <-ran)
				require.ErrorContains(t, b.Err(), "connection lost")
				require.ErrorContains(t, b.Err(), tc.text)
				quiet()
				assertGone(t, p)
				assert.Empty(t, ups, "gone once")
				require.Error(t, b.Shutdown(t.Context()), "after it, too, the loss is told")
				assert.Len(t, reports, 3, "two subscriptions that ended and a settlement that was lost")
				book.assertLine(t, "level=WARN", "connection lost")
				book.assertLine(t, "level=ERROR", "broker ended")
				book.assertLine(t, "level=ERROR", "subscription ended", "address=idle")
				book.assertLine(t, "level=ERROR", "settlement lost", "address=busy")
				book.assertLine(t, "level=WARN", "publish uncertain", "address=out")
				assert.NotContains(t, book.String(), "hunter2")
				late := b.Subscribe("late", accepting)
				require.Error(t, late.Attached(t.Context()))
			})
		})
	}
}

func TestBroker_silentPeerIsALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, accepting, nil, &amqpflow.Options{IdleTimeout: 10 * time.Second})
		started := time.Now()
		<-b.Done()
		took := time.Since(started)
		assert.GreaterOrEqual(t, took, 10*time.Second)
		assert.LessOrEqual(t, took, 11*time.Second)
		require.Error(t, b.Err())
		_ = b.Shutdown(within(t, time.Second))
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
