package amqptest_test

import (
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// scheduled publishes a message for a time that is far away, and where it does
// not come at once, another for one that is near.
func scheduled(annotate func(at time.Time) amqp.Annotations) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n := p.queue(t, queueOptions{})
		return whenItComes(t, p, n, func(at time.Time) {
			m := text("a")
			m.Annotations = annotate(at)
			put(t, p, n, m)
		})
	}
}

func deliveryTime(at time.Time) amqp.Annotations {
	return amqp.Annotations{"x-opt-delivery-time": at.UnixMilli()}
}

func deliveryDelay(at time.Time) amqp.Annotations {
	return amqp.Annotations{"x-opt-delivery-delay": time.Until(at).Milliseconds()}
}

// retried takes a message and gives it back for a time, in the same way.
func retried(o queueOptions) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n := p.queue(t, o)
		return whenItComes(t, p, n, func(at time.Time) {
			put(t, p, n, text("a"))
			r := openRaw(t, p)
			r.settle(wire.State{Kind: wire.StateModified, DeliveryFailed: true, Annotations: wire.Map{
				{Key: wire.Symbol("x-opt-delivery-time"), Value: at.UnixMilli()},
			}}, r.takeOne(n))
			require.Equal(t, "ignored", r.reaction())
		})
	}
}

// whenItComes says whether what leave leaves in n for a time waits for it.
func whenItComes(t *testing.T, p *peer, n node, leave func(at time.Time)) string {
	t.Helper()
	leave(time.Now().Add(time.Hour))
	if left(t, p, n) != "nothing" {
		return "at once"
	}
	at := time.Now().Add(time.Second)
	leave(at)
	openRaw(t, p).takeOne(n)
	const slack = 100 * time.Millisecond // of the broker's clock and ours
	require.Greater(t, time.Now(), at.Add(-slack))
	return "then"
}
