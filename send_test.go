package amqpflow_test

import (
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

// A message of several frames whose context ends when some are queued is
// finished: the receipt beside the error tells what became of it.
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
// A handler that sends does not wait for itself.
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
