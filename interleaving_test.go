package amqpflow_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestPublisher_lossWhileASendWaitsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, pub := publisher(t)
		p.credit = 1
		require.NoError(t, pub.Publish(t.Context(), "out", "x"))
		failed := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { _, err := pub.Send(t.Context(), "out", "y"); failed <- err })
		quiet()
		l := p.link("out", wire.RoleSender)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		require.ErrorIs(t, <-failed, amqpflow.ErrNotSent)
		wg.Wait()
		quiet()
		began := time.Now()
		shutdown(t, b)
		assert.Less(t, time.Since(began), time.Second)
	})
}

func TestSubscription_closeAfterALossLeavesTheSharedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxSessions: 2})
		var subs []*amqpflow.Subscription
		for _, a := range []amqpflow.Address{"a", "b", "c"} {
			subs = append(subs, b.Subscribe(a, accepting))
		}
		p.connect(b)
		l := p.link("a", wire.RoleReceiver)
		p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
		<-subs[0].Done()
		quiet()
		require.NoError(t, subs[0].Close(within(t, time.Second)))
		require.NoError(t, subs[1].Close(within(t, time.Second)))
		quiet()
		require.NoError(t, subs[2].Err())
		assert.Equal(t, amqpflow.Attached, subs[2].State())
		assert.Empty(t, p.sent(wire.CodeEnd))
		shutdown(t, b)
	})
}
