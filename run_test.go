package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestBroker_runReturnsNilAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: p.dialTCP})
		sub := b.Subscribe("orders", accepting)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- b.Run(ctx) }()
		require.NoError(t, sub.Attached(t.Context()))
		p.deliver("orders", data("x"))
		p.awaitDisposition()
		require.ErrorContains(t, b.Run(ctx), "running already", "Run twice at once")
		cancel()
		require.NoError(t, <-ran)
		require.NoError(t, b.Err())
		assert.Contains(t, p.trace(), "close")
		require.ErrorIs(t, b.Run(t.Context()), amqpflow.ErrShutdown)
	})
}

func TestBroker_runServesWhatIsConnectedAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t)})
		p.connect(b)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- b.Run(ctx) }()
		synctest.Wait()
		cancel()
		require.NoError(t, <-ran)
	})
}

func TestBroker_runIsBoundedByShutdownTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: p.dialTCP, ShutdownTimeout: 4 * time.Second})
		begun, goOn := make(chan struct{}), make(chan struct{})
		b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error {
			close(begun)
			<-goOn
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- b.Run(ctx) }()
		p.awaitCode(wire.CodeFlow)
		p.deliver("orders", data("x"))
		<-begun
		started := time.Now()
		cancel()
		err := <-ran
		require.Error(t, err, "the drain was not clean")
		require.NotErrorIs(t, err, context.Canceled)
		assertWithin(t, started, 4*time.Second)
		close(goOn)
	})
}

func TestBroker_runReturnsConnectsErrorAndNilWhereItsContextEndedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.mute(wire.CodeOpen)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: p.dialTCP})
		require.NoError(t, b.Run(within(t, time.Second)), "never ctx's error")
	})
	b := amqpflow.New("nonsense")
	var failed *amqpflow.ConnectError
	require.ErrorAs(t, b.Run(context.Background()), &failed)
}

func TestBroker_failFastEndsRunWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: p.dialTCP, Logger: book.logger()})
		fatal := errors.New("disk is full")
		b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error { return amqpflow.FailFast(fatal) })
		ran := make(chan error, 1)
		go func() { ran <- b.Run(t.Context()) }()
		p.awaitCode(wire.CodeFlow)
		p.deliverAnyway(p.link("orders", wire.RoleReceiver), data("x"), 3)
		require.Equal(t, fatal, <-ran)
		require.Equal(t, fatal, b.Err())
		<-b.Done()
		outcomes := p.outcomes()
		assert.Empty(t, outcomes[0], "left unsettled")
		for id := uint32(1); id < 3; id++ {
			assert.Equal(t, []wire.StateKind{wire.StateReleased}, outcomes[id], "no other begins")
		}
		assert.Contains(t, p.trace(), "close")
		book.assertLine(t, "level=ERROR", "broker ended", "disk is full")
	})
}
