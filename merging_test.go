package amqpflow_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Eight workers settle a thousand deliveries in at most a hundred frames.
func TestSettle_isMergedUnderConcurrency(t *testing.T) {
	const n, workers = 1000, 8
	p := newPeer(t)
	b := amqpflow.New("amqp://localhost")
	var handled atomic.Int64
	goOn, all := make(chan struct{}), make(chan struct{})
	b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error {
		<-goOn
		if handled.Add(1) == n {
			close(all)
		}
		return nil
	}, &amqpflow.SubscribeOptions{Workers: workers, Credit: 2 * n})
	p.connect(b)
	p.until(func() bool { return p.links[0].limit >= n }, "credit")
	for range n {
		p.deliver("orders", data("x"))
	}
	before := len(p.sent(wire.CodeDisposition))
	require.Zero(t, before)
	close(goOn)
	await(t, patience, all)
	shutdown(t, b)
	frames := len(p.sent(wire.CodeDisposition))
	t.Logf("%d frames for %d settlements", frames, n)
	assert.LessOrEqual(t, frames, 100)
	assert.Len(t, p.outcomes(), n)
	for _, kinds := range p.outcomes() {
		require.Equal(t, []wire.StateKind{wire.StateAccepted}, kinds)
	}
}
