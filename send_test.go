package amqpflow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// confirming is a peer that settles nothing by itself.
type confirming struct {
	*peer
	transfers chan frame
}

// sender connects a broker to a peer that confirms when the test says so.
func sender(t *testing.T, opts ...*amqpflow.Options) (*confirming, *amqpflow.Broker) {
	t.Helper()
	p := &confirming{peer: newPeer(t), transfers: make(chan frame, 1000)}
	p.credit = 1000
	b := amqpflow.New("amqp://localhost", opts...)
	p.connect(b)
	p.on(wire.CodeTransfer, func(f frame) bool { p.transfers <- f; return true })
	return p, b
}

// confirm answers the next n messages, in order.
func (p *confirming) confirm(n int, state wire.State) {
	for range n {
		f := <-p.transfers
		p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, state)
	}
}

var stateOK = wire.State{Kind: wire.StateAccepted}

func send(t *testing.T, b *amqpflow.Broker, addr amqpflow.Address, body string) *amqpflow.Receipt {
	t.Helper()
	r, err := b.Publisher().Send(t.Context(), addr, body)
	assert.NoError(t, err) // from any goroutine
	return r
}

func known(r *amqpflow.Receipt) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

// bodiesSent are the bodies of all messages that the client sent, in order.
func (p *confirming) bodiesSent() []string {
	var bodies []string
	for _, f := range p.sent(wire.CodeTransfer) {
		bodies = append(bodies, string(replyIn(p.t.(*testing.T), f).GetData()))
	}
	return bodies
}

func TestSend_doesNotWaitForTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		states := []wire.State{
			stateOK, {Kind: wire.StateReleased}, {Kind: wire.StateModified, UndeliverableHere: true},
			{Kind: wire.StateRejected, Error: &wire.Error{Condition: "acme:bad", Description: "no"}}, {},
		}
		var receipts []*amqpflow.Receipt
		for i := range states {
			receipts = append(receipts, send(t, b, "out", strconv.Itoa(i)))
		}
		synctest.Wait()
		require.Len(t, p.transfers, len(states))
		for i, state := range states {
			assert.False(t, known(receipts[i]))
			p.confirm(1, state)
		}
		synctest.Wait()
		want := []amqpflow.Outcome{amqpflow.Accepted, amqpflow.Released, amqpflow.Modified, amqpflow.Rejected}
		for i, r := range receipts {
			require.True(t, known(r))
			err := r.Wait(t.Context())
			switch i {
			case 0:
				require.NoError(t, err)
			case 4:
				require.ErrorIs(t, err, amqpflow.ErrUncertain)
			default:
				var refused *amqpflow.PublishError
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, want[i], refused.Outcome)
				assert.Equal(t, amqpflow.Address("out"), refused.Address)
			}
		}
		shutdown(t, b)
	})
}

func TestSend_fullMaxInFlightWaitsWithinItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t, &amqpflow.Options{MaxInFlight: 3})
		for i := range 3 {
			send(t, b, "out", strconv.Itoa(i))
		}
		started := time.Now()
		r, err := b.Publisher().Send(within(t, time.Second), "out", "late")
		assert.Nil(t, r)
		assert.Equal(t, time.Second, time.Since(started), "exactly")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.NotErrorIs(t, err, amqpflow.ErrUncertain)
		synctest.Wait()
		assert.Len(t, p.transfers, 3)

		send(t, b, "other", "x") // another address has places of its own
		sent := make(chan *amqpflow.Receipt, 1)
		go func() { sent <- send(t, b, "out", "3") }()
		synctest.Wait()
		assert.Empty(t, sent)
		p.confirm(1, stateOK)
		r = <-sent
		synctest.Wait()
		p.confirm(4, stateOK)
		require.NoError(t, r.Wait(t.Context()))
		assert.Equal(t, []string{"0", "1", "2", "x", "3"}, p.bodiesSent())
		shutdown(t, b)
	})
}

// One queue for each address: a Publish waits for the Sends before it, a Send
// for the Publish before it.
func TestSend_andPublishAreOneQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		send(t, b, "out", "s0")
		send(t, b, "out", "s1")
		published, sent := make(chan error, 1), make(chan *amqpflow.Receipt, 1)
		go func() { published <- b.Publisher().Publish(t.Context(), "out", "p2") }()
		synctest.Wait()
		go func() { sent <- send(t, b, "out", "s3") }()
		synctest.Wait()
		require.Len(t, p.transfers, 2, "the Publish waits for the Sends")
		p.confirm(1, stateOK)
		synctest.Wait()
		require.Len(t, p.transfers, 1)
		p.confirm(1, stateOK)
		synctest.Wait()
		require.Len(t, p.transfers, 1, "and the Send for the Publish")
		assert.Empty(t, published)
		assert.Empty(t, sent)
		p.confirm(1, stateOK)
		require.NoError(t, <-published)
		r := <-sent
		p.confirm(1, stateOK)
		require.NoError(t, r.Wait(t.Context()))
		assert.Equal(t, []string{"s0", "s1", "p2", "s3"}, p.bodiesSent())
		shutdown(t, b)
	})
}

// A Publish that is given up while it waits leaves the queue, and one that is
// given up while the peer has its message keeps the turn until the outcome.
func TestSend_goesOnWhenAPublishBeforeItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		send(t, b, "out", "s0")
		require.ErrorIs(t, b.Publisher().Publish(within(t, time.Second), "out", "p"), amqpflow.ErrNotSent)
		send(t, b, "out", "s1")
		p.confirm(2, stateOK)
		require.ErrorIs(t, b.Publisher().Publish(within(t, time.Second), "out", "p2"), amqpflow.ErrUncertain)
		_, err := b.Publisher().Send(within(t, time.Second), "out", "s")
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		p.confirm(1, stateOK)
		send(t, b, "out", "s3")
		p.confirm(1, stateOK)
		assert.Equal(t, []string{"s0", "s1", "p2", "s3"}, p.bodiesSent())
		shutdown(t, b)
	})
}

func TestFlush_waitsForEverySendSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		pub := b.Publisher()
		require.NoError(t, pub.Flush(t.Context()), "nothing is outstanding")
		send(t, b, "one", "a")
		send(t, b, "two", "b")
		flushed := make(chan error, 2)
		go func() { flushed <- pub.Flush(t.Context()) }()
		synctest.Wait()
		send(t, b, "one", "late")
		go func() { flushed <- pub.Flush(t.Context()) }()
		p.confirm(1, stateOK)
		synctest.Wait()
		assert.Empty(t, flushed)
		p.confirm(1, wire.State{Kind: wire.StateReleased})
		require.NoError(t, <-flushed, "failed is known too; the late one is not waited for")
		synctest.Wait()
		assert.Empty(t, flushed, "the second Flush came behind it")

		err := pub.Flush(within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, amqpflow.ErrUncertain)
		p.confirm(1, stateOK)
		require.NoError(t, <-flushed)
		require.NoError(t, pub.Flush(t.Context()))
		shutdown(t, b)
		require.NoError(t, pub.Flush(t.Context()), "and after Shutdown")
	})
}

func TestFlush_endsWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		r := send(t, b, "out", "x")
		flushed := make(chan error, 1)
		go func() { flushed <- b.Publisher().Flush(t.Context()) }()
		synctest.Wait()
		l := p.link("out", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: &wire.Error{Condition: "acme:gone"}})
		require.NoError(t, <-flushed)
		err := r.Wait(t.Context())
		require.ErrorIs(t, err, amqpflow.ErrUncertain)
		var remote *amqp.Error
		require.ErrorAs(t, err, &remote)
		assert.Equal(t, amqp.ErrCond("acme:gone"), remote.Condition)
		<-p.transfers
		again := send(t, b, "out", "y")
		p.confirm(1, stateOK)
		require.NoError(t, again.Wait(t.Context()), "the next attaches anew")
		shutdown(t, b)
	})
}

func TestReceipt_waitEndsForThisWaitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		r := send(t, b, "out", "x")
		for range 2 {
			err := r.Wait(within(t, time.Second))
			require.ErrorIs(t, err, amqpflow.ErrUncertain)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		answers := make(chan error, 10)
		for range cap(answers) {
			go func() { answers <- r.Wait(t.Context()) }()
		}
		synctest.Wait()
		assert.Empty(t, answers)
		p.confirm(1, wire.State{Kind: wire.StateReleased})
		var refused *amqpflow.PublishError
		for range cap(answers) {
			require.ErrorAs(t, <-answers, &refused)
		}
		shutdown(t, b)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorAs(t, r.Wait(ended), &refused, "what is known is told whatever the context")
	})
}

func TestSend_isUncertainWhereTheConnectionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		receipts := []*amqpflow.Receipt{send(t, b, "one", "a"), send(t, b, "one", "b"), send(t, b, "two", "c")}
		p.confirm(1, stateOK)
		synctest.Wait()
		p.hangUp()
		<-b.Done()
		require.NoError(t, receipts[0].Wait(t.Context()))
		require.ErrorIs(t, receipts[1].Wait(t.Context()), amqpflow.ErrUncertain)
		require.ErrorIs(t, receipts[2].Wait(t.Context()), amqpflow.ErrUncertain)
		_, err := b.Publisher().Send(t.Context(), "one", "d")
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
		require.NoError(t, b.Publisher().Flush(t.Context()))
		_ = b.Shutdown(t.Context())
	})
}

// A message of several frames whose context ends when some are queued is
// finished: the receipt beside the error tells what became of it.
func TestSend_givenUpHalfwayReturnsItsReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.open.MaxFrameSize = 1024
		p.on(wire.CodeBegin, func(f frame) bool {
			p.send(f.channel, &wire.Begin{
				RemoteChannel: wire.Some(uint32(f.channel)), IncomingWindow: 3, OutgoingWindow: 1 << 20, HandleMax: 255,
			})
			return true
		})
		p.credit = 0
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		var whole []byte
		last := make(chan frame, 1)
		var first frame
		p.on(wire.CodeTransfer, func(f frame) bool {
			tr := f.perf.(*wire.Transfer)
			if tr.DeliveryID.Set {
				first = f
			}
			if whole = append(whole, tr.Payload...); !tr.More {
				last <- f
			}
			return true
		})
		body := bytes.Repeat([]byte("x"), 20_000)
		type result struct {
			r   *amqpflow.Receipt
			err error
		}
		results := make(chan result, 1)
		go func() {
			r, err := b.Publisher().Send(within(t, time.Second), "out", body)
			results <- result{r, err}
		}()
		synctest.Wait()
		l := p.link("out", wire.RoleSender)
		window := func(frames uint32) {
			p.mu.Lock()
			incoming := p.sessions[l.channel].incoming
			p.mu.Unlock()
			p.send(l.channel, &wire.Flow{
				NextIncomingID: wire.Some(incoming), IncomingWindow: frames, OutgoingWindow: 1 << 20,
				Handle: wire.Some(l.attach.Handle), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(10),
			})
		}
		window(3)
		got := <-results
		require.ErrorIs(t, got.err, amqpflow.ErrUncertain)
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.NotNil(t, got.r)
		assert.False(t, known(got.r))
		for i := range body { // the caller's value is its own again
			body[i] = 'y'
		}
		window(100)
		<-last
		var m amqp.Message
		require.NoError(t, m.UnmarshalBinary(whole))
		assert.Equal(t, strings.Repeat("x", 20_000), string(m.GetData()))
		p.settle(first.channel, first.perf.(*wire.Transfer).DeliveryID.Value, stateOK)
		require.NoError(t, got.r.Wait(t.Context()))
		require.NoError(t, b.Publisher().Flush(t.Context()))
		shutdown(t, b)
	})
}

func TestSend_badInputIsRefusedAtTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		pub := b.Publisher()
		for field, o := range map[string]*amqpflow.PublishOptions{
			"PublishOptions.Priority":      {Priority: new(uint8(10))},
			"PublishOptions.TTL":           {TTL: -1},
			"PublishOptions.MessageID":     {MessageID: 1.5},
			"PublishOptions.CorrelationID": {CorrelationID: int32(1)},
		} {
			r, err := pub.Send(t.Context(), "out", "x", o)
			assert.Nil(t, r)
			requireOptionError(t, field, err)
		}
		for _, o := range []*amqpflow.PublishOptions{
			{Headers: map[string]any{"h": struct{}{}}},
			{Headers: map[string]any{"h": make(chan int)}},
			{Annotations: amqp.Annotations{"reserved": 1}},
			{Annotations: amqp.Annotations{"x-a": func() {}}},
		} {
			r, err := pub.Send(t.Context(), "out", "x", o)
			assert.Nil(t, r)
			var bad *amqpflow.EncodeError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, amqpflow.Address("out"), bad.Address)
		}
		r, err := pub.Send(t.Context(), "", "x")
		assert.Nil(t, r)
		require.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
		synctest.Wait()
		assert.Empty(t, p.sent(wire.CodeAttach, wire.CodeTransfer), "nothing of it reached the wire")
		good := send(t, b, "out", "good")
		p.confirm(1, stateOK)
		require.NoError(t, good.Wait(t.Context()))
		require.NoError(t, pub.Flush(t.Context()))
		shutdown(t, b)
	})
}

func TestSend_beforeConnectAndOnAZeroBroker(t *testing.T) {
	for _, b := range []*amqpflow.Broker{amqpflow.New("amqp://localhost"), {}} {
		r, err := b.Publisher().Send(t.Context(), "out", "x")
		assert.Nil(t, r)
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
	}
	require.NoError(t, amqpflow.New("amqp://localhost").Publisher().Flush(t.Context()))
}

// Many goroutines send to one address: each message is sent once, and each has
// its own answer.
func TestSend_fromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goroutines, each = 16, 50
		p, b := sender(t, &amqpflow.Options{MaxInFlight: 7})
		p.on(wire.CodeTransfer, func(f frame) bool {
			tr := f.perf.(*wire.Transfer)
			state := stateOK
			if strings.HasSuffix(string(replyIn(t, f).GetData()), "3") {
				state = wire.State{Kind: wire.StateReleased}
			}
			p.settle(f.channel, tr.DeliveryID.Value, state)
			return true
		})
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					body := fmt.Sprint(g, "-", i)
					err := send(t, b, "out", body).Wait(t.Context())
					var refused *amqpflow.PublishError
					assert.Equal(t, strings.HasSuffix(body, "3"), errors.As(err, &refused), "%s: %v", body, err)
				}
			})
		}
		wg.Wait()
		seen := map[string]bool{}
		for _, body := range p.bodiesSent() {
			assert.False(t, seen[body])
			seen[body] = true
		}
		assert.Len(t, seen, goroutines*each)
		shutdown(t, b)
	})
}

// Shutdown waits for the outcomes of what was sent, within its context.
func TestSend_shutdownWaitsForOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := sender(t)
		r := send(t, b, "out", "x")
		time.AfterFunc(3*time.Second, func() { p.confirm(1, stateOK) })
		started := time.Now()
		require.NoError(t, b.Shutdown(within(t, 10*time.Second)))
		assert.Equal(t, 3*time.Second, time.Since(started))
		require.True(t, known(r))
		require.NoError(t, r.Wait(t.Context()))
	})
	synctest.Test(t, func(t *testing.T) {
		_, b := sender(t)
		r := send(t, b, "out", "x")
		started := time.Now()
		require.ErrorIs(t, b.Shutdown(within(t, 2*time.Second)), context.DeadlineExceeded)
		assertWithin(t, started, 2*time.Second)
		require.ErrorIs(t, r.Wait(t.Context()), amqpflow.ErrUncertain, "and known to stay unknown")
	})
}

// A handler that sends does not wait for itself.
func TestSend_fromAHandlerWhileTheBrokerShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		begun, goOn := make(chan struct{}), make(chan struct{})
		result := make(chan error, 2)
		b.Subscribe("orders", func(ctx context.Context, _ *amqpflow.Delivery) error {
			close(begun)
			<-goOn
			r, err := b.Publisher().Send(ctx, "out", "x")
			result <- err
			if err != nil {
				return err
			}
			result <- r.Wait(ctx)
			return nil
		})
		p.connect(b)
		p.deliver("orders", data("x"))
		<-begun
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(within(t, time.Minute)) }()
		synctest.Wait()
		_, err := b.Publisher().Send(t.Context(), "out", "no handler's")
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
		close(goOn)
		require.NoError(t, <-result)
		require.NoError(t, <-result)
		require.NoError(t, <-ended)
	})
}

// A middleware that keeps a message to itself leaves no receipt to wait for.
func TestSend_thatNoMiddlewarePassesOnIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{PublishMiddleware: []amqpflow.PublishMiddleware{
			func(amqpflow.PublishFunc) amqpflow.PublishFunc {
				return func(context.Context, amqpflow.Address, *amqp.Message) error { return nil }
			},
		}})
		p.connect(b)
		r, err := b.Publisher().Send(t.Context(), "out", "x")
		assert.Nil(t, r)
		require.ErrorIs(t, err, amqpflow.ErrNotSent)
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"), "a Publish is what the middleware says")
		shutdown(t, b)
	})
}
