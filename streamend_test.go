package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestStream_shutdownWaitsForItsReader(t *testing.T) {
	for name, end := range map[string]func(*amqpflow.Broker, *amqpflow.Stream, context.Context) error{
		"Shutdown": func(b *amqpflow.Broker, _ *amqpflow.Stream, ctx context.Context) error { return b.Shutdown(ctx) },
		"Close":    func(_ *amqpflow.Broker, s *amqpflow.Stream, ctx context.Context) error { return s.Close(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, s := stream(t, nil)
				goOn := make(chan struct{})
				r := read(t.Context(), s, func(d *amqpflow.Delivery) {
					<-goOn
					assert.NoError(t, d.Accept(t.Context()))
				})
				for range 5 {
					p.deliver("orders", data("x"))
				}
				synctest.Wait()
				ended := make(chan error, 1)
				go func() { ended <- end(b, s, within(t, time.Minute)) }()
				<-time.After(10 * time.Second)
				assert.Empty(t, ended)
				assert.Empty(t, p.sent(wire.CodeDetach))
				assert.Empty(t, p.outcomes(), "nothing is released")
				close(goOn)
				require.NoError(t, <-ended)
				require.NoError(t, <-r.end, "then the sequence ends")
				assert.Len(t, r.got, 5)
				outcomes := p.outcomes()
				require.Len(t, outcomes, 5)
				for _, kinds := range outcomes {
					assert.Equal(t, []wire.StateKind{wire.StateAccepted}, kinds)
				}
				require.NoError(t, s.Err())
				shutdown(t, b)
			})
		})
	}
}

func TestStream_shutdownPastItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, nil)
		goOn := make(chan struct{})
		var errs []error
		r := read(t.Context(), s, func(d *amqpflow.Delivery) {
			<-goOn
			errs = append(errs, d.Accept(t.Context()))
		})
		for range 5 {
			p.deliver("orders", data("x"))
		}
		synctest.Wait()
		started := time.Now()
		err := b.Shutdown(within(t, 3*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "orders")
		assertWithin(t, started, 3*time.Second)
		synctest.Wait()
		assertGone(t, p)
		close(goOn)
		require.NoError(t, <-r.end)
		require.Len(t, errs, 5, "the rest is yielded")
		for _, err := range errs {
			assert.True(t, errors.Is(err, amqpflow.ErrLinkLost) || errors.Is(err, amqpflow.ErrShutdown), "%v", err)
		}
		assert.Empty(t, p.outcomes())
		for range s.Deliveries(t.Context()) {
			t.Error("it ended")
		}
	})
}

func TestStream_shutdownReleasesWhatNobodyRangesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, nil)
		for range 5 {
			p.deliver("orders", data("x"))
		}
		for d, err := range s.Deliveries(t.Context()) {
			require.NoError(t, err)
			require.NoError(t, d.Accept(t.Context()))
			break
		}
		started := time.Now()
		shutdown(t, b)
		assert.Less(t, time.Since(started), 100*time.Millisecond)
		outcomes := p.outcomes()
		require.Len(t, outcomes, 5)
		assert.Equal(t, []wire.StateKind{wire.StateAccepted}, outcomes[0])
		for id := uint32(1); id < 5; id++ {
			assert.Equal(t, []wire.StateKind{wire.StateReleased}, outcomes[id])
		}
	})
}

func TestStream_outlivesItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, nil)
		goOn := make(chan struct{})
		r := read(t.Context(), s, func(d *amqpflow.Delivery) {
			<-goOn
			assert.ErrorIs(t, d.Accept(t.Context()), amqpflow.ErrLinkLost)
		})
		p.deliver("orders", data("x"))
		p.deliver("orders", data("y"))
		synctest.Wait()
		l := p.link("orders", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true, Error: &wire.Error{Condition: "acme:gone"}})
		synctest.Wait()
		var remote *amqp.Error
		require.ErrorAs(t, s.Err(), &remote)
		assert.Equal(t, amqp.ErrCond("acme:gone"), remote.Condition)
		close(goOn)
		require.NoError(t, s.Attached(t.Context()))
		assert.Zero(t, s.Stats().Held, "what it held is purged")
		shutdown(t, b)
		require.NoError(t, <-r.end)
		assert.Len(t, r.got, 1)
	})
}

func TestMessages_yieldsWhatCannotBeDecodedSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, s := stream(t, &amqpflow.SubscribeOptions{OnFailure: func(_ *amqpflow.Delivery, err error) error {
			var bad *amqpflow.DecodeError
			assert.ErrorAs(t, err, &bad)
			return amqpflow.Release()
		}})
		for _, body := range []string{`{"n":1}`, `{"n":7,`, `{"n":2}`} {
			p.deliver("orders", data(body))
		}
		i := 0
		for m, err := range amqpflow.Messages[part](t.Context(), s) {
			switch i++; i {
			case 1, 3:
				require.NoError(t, err)
				require.NoError(t, m.Accept(t.Context()))
			case 2:
				var bad *amqpflow.DecodeError
				require.ErrorAs(t, err, &bad)
				assert.Equal(t, part{}, m.Body, "nothing of it, though part was decoded")
				require.ErrorIs(t, m.Accept(t.Context()), amqpflow.ErrSettled)
			}
			if i == 3 {
				break
			}
		}
		quiet()
		assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}, 1: {wire.StateReleased}, 2: {wire.StateAccepted}}, p.outcomes())
		go func() { _ = b.Shutdown(within(t, time.Second)) }()
		for m, err := range amqpflow.Messages[part](t.Context(), s) {
			t.Errorf("%v, %v after a clean Shutdown", m, err)
		}
		<-b.Done()
	})
}
