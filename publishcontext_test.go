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

func TestPublisher_contextThatEndsBeforeTheFirstFrame(t *testing.T) {
	for _, tc := range []struct {
		name  string
		block func(*testing.T, *peer, *amqpflow.Publisher)
	}{
		{"for the attach", func(_ *testing.T, p *peer, _ *amqpflow.Publisher) { p.mute(wire.CodeAttach) }},
		{"for credit", func(_ *testing.T, p *peer, _ *amqpflow.Publisher) { p.credit = 0 }},
		{"for the publish before it", func(t *testing.T, p *peer, pub *amqpflow.Publisher) {
			p.mute(wire.CodeTransfer)
			start(t.Context(), pub, "out", "first")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, pub := publisher(t)
				tc.block(t, p, pub)
				before := len(p.sent(wire.CodeTransfer))
				started := time.Now()
				err := pub.Publish(within(t, 1500*time.Millisecond), "out", "x")
				assert.Equal(t, 1500*time.Millisecond, time.Since(started))
				require.ErrorIs(t, err, amqpflow.ErrNotSent)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, amqpflow.ErrUncertain)
				var failed *amqpflow.PublishError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, amqpflow.Address("out"), failed.Address)
				assert.Equal(t, amqpflow.OutcomeNone, failed.Outcome)

				ended, cancel := context.WithCancel(t.Context())
				cancel()
				err = pub.Publish(ended, "out", "x")
				require.ErrorIs(t, err, amqpflow.ErrNotSent)
				require.ErrorIs(t, err, context.Canceled)
				quiet()
				assert.Len(t, p.sent(wire.CodeTransfer), before)
				require.NoError(t, b.Ready(), "no context kills the connection")
				_ = b.Shutdown(within(t, time.Second))
			})
		})
	}
}

func TestPublisher_contextThatEndsAfterTheFirstFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, pub := publisher(t, &amqpflow.Options{Logger: book.logger()})
		p.mute(wire.CodeTransfer)
		started := time.Now()
		err := pub.Publish(within(t, 1500*time.Millisecond), "out", "first")
		assert.Equal(t, 1500*time.Millisecond, time.Since(started))
		require.ErrorIs(t, err, amqpflow.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, amqpflow.ErrNotSent)
		book.assertLine(t, "level=WARN", "publish uncertain", "address=out")

		next := start(t.Context(), pub, "out", "second")
		quiet()
		assert.Len(t, p.sent(wire.CodeTransfer), 1, "the next one leaves when the one before is answered")
		p.on(wire.CodeTransfer, func(frame) bool { return false })
		f := p.sent(wire.CodeTransfer)[0]
		p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
		require.NoError(t, <-next)
		shutdown(t, b)
	})
}

func TestPublisher_messageUnderWayIsFinishedWhateverItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.open.MaxFrameSize = 512
		p.holdBack(2, 10)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		body := make([]byte, 5000)
		for i := range body {
			body[i] = byte(i)
		}
		err := b.Publisher().Publish(within(t, time.Second), "out", body)
		require.ErrorIs(t, err, amqpflow.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		quiet()
		first := p.sent(wire.CodeTransfer)
		require.Len(t, first, 2, "the window holds the rest back")
		for i := range body {
			body[i] = 0 // the caller's again
		}
		channel := first[0].channel
		p.send(channel, &wire.Flow{NextIncomingID: wire.Some(2), IncomingWindow: 100, OutgoingWindow: 100})
		quiet()
		var payload []byte
		transfers := p.sent(wire.CodeTransfer)
		for i, f := range transfers {
			sent := f.perf.(*wire.Transfer)
			assert.False(t, sent.Aborted)
			assert.Equal(t, i < len(transfers)-1, sent.More)
			payload = append(payload, sent.Payload...)
		}
		got := bodyOf(t, payload)
		require.Len(t, got, 5000)
		for i := range got {
			require.Equal(t, byte(i), got[i], "octet %d", i)
		}
		p.settle(channel, transfers[0].perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
		shutdown(t, b)
	})
}
