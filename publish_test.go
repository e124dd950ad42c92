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

// After the first frame the peer may have the message.
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

// A message of several frames whose context ends between two of them is
// finished, never aborted: RabbitMQ delivers an aborted message.
func TestPublisher_messageUnderWayIsFinishedWhateverItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.open.MaxFrameSize = 512
		p.on(wire.CodeBegin, func(f frame) bool { // a window of two frames
			p.send(f.channel, &wire.Begin{RemoteChannel: wire.Some(uint32(f.channel)), IncomingWindow: 2, OutgoingWindow: 100, HandleMax: 255})
			return true
		})
		p.on(wire.CodeAttach, func(f frame) bool {
			a := f.perf.(*wire.Attach)
			p.send(f.channel, &wire.Attach{Name: a.Name, Handle: a.Handle, Role: wire.RoleReceiver, Source: a.Source, Target: a.Target})
			p.send(f.channel, &wire.Flow{
				NextIncomingID: wire.Some(0), IncomingWindow: 2, OutgoingWindow: 100,
				Handle: wire.Some(a.Handle), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(10),
			})
			return true
		})
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

// The link is lost between two publishes, with nobody to tell.
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

// A publish that waits for its turn, or for credit, when the link goes has
// sent nothing.
func TestPublisher_waitingPublishOfALostLinkIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 1
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		waiting := start(t.Context(), pub, "out", "y")
		l := p.link("out", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: errDeleted})
		err := <-waiting
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.NotErrorIs(t, err, amqpflow.ErrUncertain)
		var remote *amqp.Error
		require.ErrorAs(t, err, &remote)
		assert.Len(t, p.sent(wire.CodeTransfer), 1)
		shutdown(t, b)
	})
}

// Publishes with contexts that end at any moment: each has one answer, it is
// true, and the connection lives.
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

// A shutdown answers every publish that is under way.
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

func TestPublisher_moreThanOneOptionsArgumentPanics(t *testing.T) {
	pub := amqpflow.New("amqp://localhost").Publisher()
	assert.Panics(t, func() { _ = pub.Publish(context.Background(), "out", "x", nil, nil) })
	require.ErrorIs(t, pub.Publish(context.Background(), "out", "x", nil), amqpflow.ErrNotConnected)
}
