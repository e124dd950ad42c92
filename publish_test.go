package amqpflow_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// publisher connects a broker that only publishes to a new peer.
func publisher(t *testing.T, opts ...*amqpflow.Options) (*peer, *amqpflow.Broker, *amqpflow.Publisher) {
	t.Helper()
	p := newPeer(t)
	b := amqpflow.New("amqp://user:hunter2@localhost", opts...)
	p.connect(b)
	return p, b, b.Publisher()
}

// start publishes in the background, and returns once the call is under way.
func start(ctx context.Context, pub *amqpflow.Publisher, addr amqpflow.Address, v any) <-chan error {
	done := make(chan error, 1)
	go func() { done <- pub.Publish(ctx, addr, v) }()
	synctest.Wait()
	return done
}

func TestPublisher_beforeConnectAndAfterShutdownIsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		pub := b.Publisher()
		require.ErrorIs(t, pub.Publish(t.Context(), "out", "x"), amqpflow.ErrNotConnected)
		p.connect(b)
		assert.Same(t, pub, b.Publisher(), "always the same one")
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		shutdown(t, b)
		require.ErrorIs(t, pub.Publish(t.Context(), "out", "x"), amqpflow.ErrNotConnected)
		assert.Len(t, p.sent(wire.CodeTransfer), 1)
	})
}

func TestPublisher_firstPublishAttachesTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		quiet()
		assert.Empty(t, p.sent(wire.CodeAttach), "never at start")
		for range 3 {
			require.NoError(t, pub.Publish(t.Context(), "one", "x"))
		}
		require.NoError(t, pub.Publish(t.Context(), "queue:two", "x"))
		attaches := p.sent(wire.CodeAttach)
		require.Len(t, attaches, 2, "one for each address")
		for _, f := range attaches {
			a := f.perf.(*wire.Attach)
			assert.Equal(t, wire.RoleSender, a.Role)
			assert.Equal(t, []wire.Symbol{"queue"}, a.Target.Capabilities)
			assert.Equal(t, attaches[0].channel, f.channel, "on one session")
		}
		assert.Len(t, p.sent(wire.CodeBegin), 1)
		shutdown(t, b)
	})
}

// Of several publishes to one address the next leaves when the one before is
// answered; another address does not wait.
func TestPublisher_oneAtATimePerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.mute(wire.CodeTransfer)
		var done []<-chan error
		for i := range 5 {
			done = append(done, start(t.Context(), pub, "one", strconv.Itoa(i)))
		}
		for i := range 5 {
			f := p.awaitCode(wire.CodeTransfer)
			sent := f.perf.(*wire.Transfer)
			quiet()
			assert.Len(t, p.sent(wire.CodeTransfer), i+1, "one at a time")
			assert.Equal(t, strconv.Itoa(i), bodyOf(t, sent.Payload), "in the order of the calls")
			for _, other := range done[i:] {
				assert.Empty(t, other)
			}
			p.settle(f.channel, sent.DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
			require.NoError(t, <-done[i])
		}
		blocked := start(t.Context(), pub, "one", "x")
		p.awaitCode(wire.CodeTransfer)
		p.on(wire.CodeTransfer, func(frame) bool { return false })
		require.NoError(t, pub.Publish(t.Context(), "two", "x"), "another address does not wait")
		assert.Empty(t, blocked)
		first := p.sent(wire.CodeTransfer)[5]
		p.settle(first.channel, first.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
		require.NoError(t, <-blocked)
		shutdown(t, b)
	})
}

func bodyOf(t *testing.T, payload []byte) string {
	t.Helper()
	var sections wire.Sections
	require.NoError(t, sections.Parse(payload))
	return string(sections.AppendBody(nil))
}

func TestPublisher_slowAttachOfOneAddressHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		var slow frame
		p.on(wire.CodeAttach, func(f frame) bool {
			if f.perf.(*wire.Attach).Target.Address != "slow" {
				return false
			}
			slow = f
			return true
		})
		blocked := start(t.Context(), pub, "slow", "x")
		require.NoError(t, pub.Publish(t.Context(), "fast", "x"))
		gone := start(within(t, time.Second), pub, "slow", "y")
		started := time.Now()
		err := <-gone
		assert.Equal(t, time.Second, time.Since(started))
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		p.answer(slow)
		require.NoError(t, <-blocked)
		shutdown(t, b)
	})
}

func TestPublisher_outcomesThatAreNotAccepted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state wire.State
		want  amqpflow.PublishError
	}{
		{"released", wire.State{Kind: wire.StateReleased}, amqpflow.PublishError{Outcome: amqpflow.Released}},
		{
			"modified", wire.State{Kind: wire.StateModified, DeliveryFailed: true, Annotations: wire.Map{{Key: wire.Symbol("x-a"), Value: "b"}}},
			amqpflow.PublishError{Outcome: amqpflow.Modified, Info: map[string]any{
				"delivery-failed": true, "undeliverable-here": false, "message-annotations": map[string]any{"x-a": "b"},
			}},
		},
		{"rejected without an error", wire.State{Kind: wire.StateRejected}, amqpflow.PublishError{Outcome: amqpflow.Rejected}},
		{
			"rejected", wire.State{Kind: wire.StateRejected, Error: &wire.Error{
				Condition: "amqp:resource-limit-exceeded", Description: "queue is full", Info: wire.Map{{Key: wire.Symbol("queue"), Value: "q"}},
			}},
			amqpflow.PublishError{
				Outcome: amqpflow.Rejected, Condition: amqp.ErrCondResourceLimitExceeded, Description: "queue is full", Info: map[string]any{"queue": "q"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type published struct {
					addr    amqpflow.Address
					outcome amqpflow.Outcome
					err     error
				}
				seen := make(chan published, 2)
				p, b, pub := publisher(t, &amqpflow.Options{Observer: &amqpflow.Observer{
					Published: func(addr amqpflow.Address, o amqpflow.Outcome, _ time.Duration, err error) {
						seen <- published{addr, o, err}
					},
				}})
				p.on(wire.CodeTransfer, p.answersWith(tc.state, true))
				err := pub.Publish(t.Context(), "out", "x")
				var refused *amqpflow.PublishError
				require.ErrorAs(t, err, &refused)
				tc.want.Address = "out"
				assert.Equal(t, &tc.want, refused)
				require.NotErrorIs(t, err, amqpflow.ErrUncertain)
				assert.Contains(t, err.Error(), tc.want.Outcome.String())
				assert.Equal(t, published{"out", tc.want.Outcome, err}, <-seen)
				p.on(wire.CodeTransfer, func(frame) bool { return false })
				require.NoError(t, pub.Publish(t.Context(), "out", "x"), "the link goes on")
				assert.Equal(t, published{"out", amqpflow.Accepted, nil}, <-seen)
				shutdown(t, b)
			})
		})
	}
}

// answersWith answers every transfer with a disposition.
func (p *peer) answersWith(state wire.State, settled bool) func(frame) bool {
	return func(f frame) bool {
		id := f.perf.(*wire.Transfer).DeliveryID.Value
		p.send(f.channel, &wire.Disposition{Role: wire.RoleReceiver, First: id, Last: id, Settled: settled, State: state})
		return true
	}
}

func TestPublisher_settledWithoutAnOutcomeIsUncertain(t *testing.T) {
	for _, state := range []wire.State{{}, {Kind: wire.StateReceived}} {
		synctest.Test(t, func(t *testing.T) {
			book := new(logbook)
			p, b, pub := publisher(t, &amqpflow.Options{Logger: book.logger()})
			p.on(wire.CodeTransfer, p.answersWith(state, true))
			err := pub.Publish(t.Context(), "out", "x")
			require.ErrorIs(t, err, amqpflow.ErrUncertain)
			require.NotErrorIs(t, err, amqpflow.ErrNotSent)
			book.assertLine(t, "level=WARN", "publish uncertain", "address=out")
			shutdown(t, b)
		})
	}
}

// A terminal outcome that is not settled yet is the answer; the client settles.
func TestPublisher_outcomeBeforeTheSettlementIsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.on(wire.CodeTransfer, p.answersWith(wire.State{Kind: wire.StateAccepted}, false))
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		shutdown(t, b)
	})
}

// The context ends before the first frame: nothing was sent, exactly on time,
// whatever the publish waits for.
// After the first frame the peer may have the message.
// A message of several frames whose context ends between two of them is
// finished, never aborted: RabbitMQ delivers an aborted message.
func TestPublisher_tooLargeForThePeerIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.on(wire.CodeAttach, func(f frame) bool {
			a := f.perf.(*wire.Attach)
			p.send(f.channel, &wire.Attach{
				Name: a.Name, Handle: a.Handle, Role: wire.RoleReceiver, Source: a.Source, Target: a.Target, MaxMessageSize: 1000,
			})
			p.grant(f.channel, a.Handle, 10)
			return true
		})
		err := pub.Publish(t.Context(), "out", make([]byte, 1000))
		var failed *amqpflow.PublishError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, amqp.ErrCondMessageSizeExceeded, failed.Condition)
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.NoError(t, pub.Publish(t.Context(), "out", make([]byte, 500)))
		assert.Len(t, p.sent(wire.CodeTransfer), 1)
		shutdown(t, b)
	})
}

func TestPublisher_refusedAddressIsAnAttachErrorAndHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, pub := publisher(t, &amqpflow.Options{Logger: book.logger()})
		require.NoError(t, pub.Publish(t.Context(), "good", "x"))
		refusing := true
		p.on(wire.CodeAttach, func(f frame) bool {
			a := f.perf.(*wire.Attach)
			if refusing && a.Target.Address == "missing" {
				p.refuse(f.channel, a, &wire.Error{Condition: "amqp:not-found", Description: "no such node"})
				return true
			}
			return false
		})
		for range 3 {
			err := pub.Publish(t.Context(), "missing", "x")
			var failed *amqpflow.PublishError
			require.ErrorAs(t, err, &failed)
			require.ErrorIs(t, err, amqpflow.ErrNotSent)
			var refused *amqpflow.AttachError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, amqpflow.Address("missing"), refused.Address)
			var remote *amqp.Error
			require.ErrorAs(t, err, &remote)
			assert.Equal(t, amqp.ErrCondNotFound, remote.Condition)
			require.NoError(t, pub.Publish(t.Context(), "good", "x"))
		}
		refusing = false
		require.NoError(t, pub.Publish(t.Context(), "missing", "x"), "each publish tries anew")
		book.assertLine(t, "level=WARN", "attach refused", "address=missing")
		shutdown(t, b)
	})
}

// A sending link or its session lost: what is outstanding is uncertain, and
// the next publish attaches anew.
// The link is lost between two publishes, with nobody to tell.
// A publish that waits for its turn, or for credit, when the link goes has
// sent nothing.
// Publishes with contexts that end at any moment: each has one answer, it is
// true, and the connection lives.
// A shutdown answers every publish that is under way.
func TestPublisher_moreThanOneOptionsArgumentPanics(t *testing.T) {
	pub := amqpflow.New("amqp://localhost").Publisher()
	assert.Panics(t, func() { _ = pub.Publish(context.Background(), "out", "x", nil, nil) })
	require.ErrorIs(t, pub.Publish(context.Background(), "out", "x", nil), amqpflow.ErrNotConnected)
}
