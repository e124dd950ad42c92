package amqpflow_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// flow opens a session's window and gives a client that sends credit.
func (p *peer) flow(channel uint16, handle, window, credit uint32) {
	p.send(channel, &wire.Flow{
		NextIncomingID: wire.Some(0), IncomingWindow: window, OutgoingWindow: 100,
		Handle: wire.Some(handle), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(credit),
	})
}

// holdBack makes the peer take, on each session and link, no more than window
// frames and credit messages, until flow says otherwise.
func (p *peer) holdBack(window, credit uint32) {
	p.on(wire.CodeBegin, func(f frame) bool {
		p.send(f.channel, &wire.Begin{
			RemoteChannel: wire.Some(uint32(f.channel)), IncomingWindow: window, OutgoingWindow: 100, HandleMax: 255,
		})
		return true
	})
	p.on(wire.CodeAttach, func(f frame) bool {
		a := f.perf.(*wire.Attach)
		p.send(f.channel, &wire.Attach{Name: a.Name, Handle: a.Handle, Role: wire.RoleReceiver, Source: a.Source, Target: a.Target})
		p.flow(f.channel, a.Handle, window, credit)
		return true
	})
}

// verbs are the ways to publish and wait for the outcome.
var verbs = map[string]func(context.Context, *amqpflow.Publisher, string) error{
	"Publish": func(ctx context.Context, pub *amqpflow.Publisher, body string) error {
		return pub.Publish(ctx, "out", body)
	},
	"Send": func(ctx context.Context, pub *amqpflow.Publisher, body string) error {
		receipt, err := pub.Send(ctx, "out", body)
		if err != nil {
			return err
		}
		return receipt.Wait(ctx)
	},
}

// A context that ends in the middle of a large message: DESIGN.md finishes the
// message instead of replacing the link, and nothing stands in between its
// frames, nor does another message get into its memory.
func TestFieldReport_B36_cancelledLargeMessageIsFinishedBeforeTheNext(t *testing.T) {
	const rounds = 5 // under the race detector a pool forgets some of what it is given
	large, other := strings.Repeat("a", 2000), strings.Repeat("b", 2000)
	for name, publish := range verbs {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					p := newPeer(t)
					p.open.MaxFrameSize = 512
					p.holdBack(1, 100)
					b := amqpflow.New("amqp://localhost")
					p.connect(b)
					err := publish(within(t, 300*time.Millisecond), b.Publisher(), large)
					require.ErrorIs(t, err, amqpflow.ErrUncertain)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					err = publish(within(t, 300*time.Millisecond), b.Publisher(), other)
					require.ErrorIs(t, err, amqpflow.ErrNotSent)
					answers := make(chan error, 5)
					want := []string{large}
					for i := range cap(answers) {
						want = append(want, fmt.Sprint(i))
						go func() { answers <- publish(t.Context(), b.Publisher(), fmt.Sprint(i)) }()
						synctest.Wait()
					}
					require.Len(t, p.sent(wire.CodeTransfer), 1, "the window holds all back behind the first frame")
					l := p.link("out", wire.RoleSender)
					p.send(l.channel, &wire.Flow{NextIncomingID: wire.Some(1), IncomingWindow: 100, OutgoingWindow: 100})
					for range cap(answers) {
						require.NoError(t, <-answers)
					}
					assert.Equal(t, want, p.published(t))
					shutdown(t, b)
				})
			}
		})
	}
}

// published returns the bodies of the messages that came whole, on one link.
func (p *peer) published(t *testing.T) (bodies []string) {
	t.Helper()
	var payload []byte
	for _, f := range p.sent(wire.CodeTransfer) {
		sent := f.perf.(*wire.Transfer)
		assert.False(t, sent.Aborted)
		if payload = append(payload, sent.Payload...); !sent.More {
			bodies = append(bodies, bodyOf(t, payload))
			payload = nil
		}
	}
	return bodies
}

// A link that is lost with half a message on the wire: whoever published is
// uncertain at once, and nothing of the message goes over the next link, which
// takes what comes behind it.
func TestFieldReport_B43_halfSentIsUncertainAndNotRepeated(t *testing.T) {
	for name, publish := range verbs {
		for loss, lose := range losses {
			t.Run(name+" "+loss, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ps := newPeers(t, func(n int, p *peer) {
						if n == 0 {
							p.open.MaxFrameSize = 512
							p.holdBack(1, 100)
						}
					})
					b := amqpflow.New("amqp://localhost")
					p := ps.connect(b)
					answer := make(chan error, 1)
					go func() { answer <- publish(t.Context(), b.Publisher(), strings.Repeat("a", 3000)) }()
					synctest.Wait()
					half := p.sent(wire.CodeTransfer)
					require.Len(t, half, 1)
					require.True(t, half[0].perf.(*wire.Transfer).More)
					next := start(t.Context(), b.Publisher(), "out", "next")

					p.on(wire.CodeBegin, func(frame) bool { return false })
					p.on(wire.CodeAttach, func(frame) bool { return false })
					lose(p, p.link("out", wire.RoleSender))
					err := <-answer
					require.ErrorIs(t, err, amqpflow.ErrUncertain)
					require.NotErrorIs(t, err, amqpflow.ErrNotSent)
					require.NoError(t, <-next)
					rest := p.sent(wire.CodeTransfer)[len(half):]
					if latest := ps.latest(); latest != p {
						rest = append(rest, latest.sent(wire.CodeTransfer)...)
					}
					require.Len(t, rest, 1)
					assert.Equal(t, "next", bodyOf(t, rest[0].perf.(*wire.Transfer).Payload))
					shutdown(t, b)
				})
			})
		}
	}
}
