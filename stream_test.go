package amqpflow_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// stream connects a broker with a Stream of "orders" to a new peer.
func stream(t *testing.T, so *amqpflow.SubscribeOptions) (*peer, *amqpflow.Broker, *amqpflow.Stream) {
	t.Helper()
	p := newPeer(t)
	b := amqpflow.New("amqp://localhost")
	s := b.Stream("orders", so)
	p.connect(b)
	return p, b, s
}

// reading ranges over s in a goroutine of its own, settling as accept says.
type reading struct {
	got chan string
	end chan error // the error at the end, nil without one; then closed
}

func read(ctx context.Context, s *amqpflow.Stream, body func(*amqpflow.Delivery)) *reading {
	r := &reading{got: make(chan string, 1000), end: make(chan error, 1)}
	go func() {
		defer close(r.end)
		for d, err := range s.Deliveries(ctx) {
			if err != nil {
				r.end <- err
				continue
			}
			r.got <- string(d.Data())
			body(d)
		}
	}()
	return r
}

func acceptEach(d *amqpflow.Delivery) { _ = d.Accept(context.Background()) }

func TestStream_yieldsInOrderAndSettlesByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, &amqpflow.SubscribeOptions{Credit: 8, RetryMin: -1})
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		r := read(ctx, s, func(d *amqpflow.Delivery) {
			assert.NoError(t, d.Settle(ctx, []error{nil, errors.New("x"), amqpflow.Reject(nil), amqpflow.Release()}[n%4]))
			n++
		})
		for i := range 40 {
			p.deliver("orders", data(strconv.Itoa(i)))
		}
		for i := range 40 {
			assert.Equal(t, strconv.Itoa(i), <-r.got)
		}
		quiet()
		kinds := []wire.StateKind{wire.StateAccepted, wire.StateModified, wire.StateRejected, wire.StateReleased}
		outcomes := p.outcomes()
		for id := range uint32(40) {
			assert.Equal(t, []wire.StateKind{kinds[id%4]}, outcomes[id])
		}
		cancel()
		require.NoError(t, <-r.end, "its context is no error")
		assert.Equal(t, amqpflow.Attached, s.State())
		shutdown(t, b)
	})
}

// What is not settled stays in the window, and what is settled out of the loop
// lets others come, however little it is.
func TestStream_unsettledStaysInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const credit = 8
		p, b, s := stream(t, &amqpflow.SubscribeOptions{Credit: credit})
		ctx, cancel := context.WithCancel(t.Context())
		var held []*amqpflow.Delivery
		r := read(ctx, s, func(d *amqpflow.Delivery) { held = append(held, d) })
		for range credit {
			p.deliver("orders", data("x"))
		}
		quiet()
		require.Len(t, held, credit)
		l := p.link("orders", wire.RoleReceiver)
		assert.Equal(t, l.count, l.limit, "no credit beyond the window")
		require.NoError(t, held[3].Accept(ctx))
		quiet()
		assert.Equal(t, l.count+1, l.limit, "one is free, and the reader waits")
		p.deliver("orders", data("next"))
		quiet()
		assert.Len(t, held, credit+1)
		for i, d := range held {
			if i != 3 {
				require.NoError(t, d.Accept(ctx))
			}
		}
		cancel()
		require.NoError(t, <-r.end)
		shutdown(t, b)
		assert.Len(t, p.outcomes(), credit+1)
	})
}

func TestStream_leavingTheLoopKeepsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, nil)
		for i := range 6 {
			p.deliver("orders", data(strconv.Itoa(i)))
		}
		synctest.Wait()
		var got []string
		for range 3 {
			n := 0
			for d, err := range s.Deliveries(t.Context()) {
				require.NoError(t, err)
				got = append(got, string(d.Data()))
				require.NoError(t, d.Accept(t.Context()))
				if n++; n == 2 {
					break
				}
			}
		}
		assert.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, got)
		assert.Equal(t, amqpflow.Attached, s.State())
		shutdown(t, b)
	})
}

func TestStream_rangingTwiceAtOnceIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		r := read(ctx, s, acceptEach)
		synctest.Wait()
		n := 0
		for d, err := range s.Deliveries(t.Context()) {
			n++
			assert.Nil(t, d)
			require.ErrorContains(t, err, "orders")
		}
		assert.Equal(t, 1, n)
		n = 0
		for m, err := range amqpflow.Messages[string](t.Context(), s) {
			n++
			assert.Nil(t, m)
			require.Error(t, err)
		}
		assert.Equal(t, 1, n)
		p.deliver("orders", data("x"))
		assert.Equal(t, "x", <-r.got, "the first goes on")
		cancel()
		require.NoError(t, <-r.end)
		for range s.Deliveries(within(t, time.Millisecond)) {
			t.Error("nothing came")
		}
		shutdown(t, b)
	})
}

// At the bound the link goes, the rest is yielded, and cannot be settled.
func TestStream_registrationErrorIsYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		s := b.Stream("orders", &amqpflow.SubscribeOptions{Credit: -1})
		for _, err := range s.Deliveries(t.Context()) {
			requireOptionError(t, "SubscribeOptions.Credit", err)
		}
		requireOptionError(t, "SubscribeOptions.Credit", s.Err())
		shutdown(t, b)
	})
}

func TestStream_atMostOnceFreesItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, &amqpflow.SubscribeOptions{Credit: 4, AtMostOnce: true})
		ctx, cancel := context.WithCancel(t.Context())
		r := read(ctx, s, func(d *amqpflow.Delivery) { assert.ErrorIs(t, d.Accept(ctx), amqpflow.ErrSettled) })
		for range 20 {
			p.deliver("orders", data("x"))
		}
		quiet()
		assert.Len(t, r.got, 20)
		cancel()
		<-r.end
		shutdown(t, b)
		assert.Empty(t, p.outcomes())
	})
}
