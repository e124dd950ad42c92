package amqpflow_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

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
		require.NoError(t, receipts[0].Wait(t.Context()))
		require.ErrorIs(t, receipts[1].Wait(t.Context()), amqpflow.ErrUncertain)
		require.ErrorIs(t, receipts[2].Wait(t.Context()), amqpflow.ErrUncertain)
		_, err := b.Publisher().Send(within(t, time.Second), "one", "d")
		require.ErrorIs(t, err, amqpflow.ErrNotConnected)
		require.NoError(t, b.Publisher().Flush(t.Context()))
		_ = b.Shutdown(t.Context())
	})
}

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
