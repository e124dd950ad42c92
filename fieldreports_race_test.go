package amqpflow_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// Many goroutines, few addresses, one message and one map of headers that all
// of them share, with subscriptions that come and go meanwhile: each message
// arrives once, whole, and nobody writes to what is not theirs (under the race
// detector).
func TestFieldReport_B44_concurrentUse(t *testing.T) {
	const goroutines, addresses, each = 16, 4, 40
	server := amqptest.NewServer()
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxInFlight: 8})
	var mu sync.Mutex
	received := map[string]int{}
	handle := func(_ context.Context, d *amqpflow.Delivery) error {
		body := d.Data()
		for _, octet := range body { // whole and not mixed
			if octet != body[0] {
				return amqpflow.FailFast(fmt.Errorf("a body of %d octets is mixed", len(body)))
			}
		}
		mu.Lock()
		received[d.MessageID()]++
		mu.Unlock()
		return nil
	}
	address := func(i int) amqpflow.Address { return amqpflow.Address(fmt.Sprint("q", i%addresses)) }
	for i := range addresses {
		b.Subscribe(address(i), handle, &amqpflow.SubscribeOptions{Credit: 20, Workers: 1 + i})
	}
	require.NoError(t, server.Connect(t.Context(), b))

	headers := map[string]any{"a": "b", "n": int64(1)}
	shared := &amqp.Message{Data: [][]byte{{'x'}}, ApplicationProperties: map[string]any{"c": "d"}}
	before := maps.Clone(shared.ApplicationProperties)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				o := &amqpflow.PublishOptions{MessageID: fmt.Sprintf("%d-%d", g, i), Headers: headers}
				var v any = shared
				if i%2 == 0 {
					size := 1 << rand.IntN(18)
					body := make([]byte, size)
					for k := range body {
						body[k] = byte(g)
					}
					v = body
				}
				if i%3 == 0 {
					assert.NoError(t, b.Publisher().Publish(ctx, address(g+i), v, o))
					continue
				}
				receipt, err := b.Publisher().Send(ctx, address(g+i), v, o)
				if body, ok := v.([]byte); ok {
					clear(body) // the caller's again
				}
				if assert.NoError(t, err) && i%5 == 0 {
					assert.NoError(t, receipt.Wait(ctx))
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 20 {
			sub := b.Subscribe(address(i), handle, &amqpflow.SubscribeOptions{Credit: 5})
			assert.NoError(t, sub.Attached(ctx))
			assert.NoError(t, sub.Close(ctx))
		}
	})
	wg.Wait()
	require.NoError(t, b.Publisher().Flush(ctx))
	require.NoError(t, server.Idle(ctx))
	require.NoError(t, b.Shutdown(ctx))
	require.NoError(t, server.Close(), "no frame broke a rule")
	assert.Len(t, received, goroutines*each)
	for id, n := range received {
		assert.Equal(t, 1, n, id)
	}
	assert.Equal(t, before, shared.ApplicationProperties)
	assert.Nil(t, shared.Properties)
}
