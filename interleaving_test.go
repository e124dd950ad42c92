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
