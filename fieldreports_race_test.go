package amqpflow_test

import (
	"bytes"
	"context"
	"fmt"
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

// storm is what the two storms of B44 have in common: a broker, few addresses, and
// one message and one map of headers that everybody shares.
type storm struct {
	server  *amqptest.Server
	b       *amqpflow.Broker
	shared  *amqp.Message
	headers map[string]any

	mu       sync.Mutex
	received map[string]int
}

const stormers, stormAddresses = 16, 4

func stormAddress(i int) amqpflow.Address { return amqpflow.Address(fmt.Sprint("q", i%stormAddresses)) }

func newStorm(t *testing.T) *storm {
	s := &storm{
		server:   amqptest.NewServer(),
		b:        amqpflow.New("amqp://localhost", &amqpflow.Options{MaxInFlight: 8}),
		shared:   &amqp.Message{Data: [][]byte{{'x'}}, ApplicationProperties: map[string]any{"c": "d"}},
		headers:  map[string]any{"a": "b", "n": int64(1)},
		received: map[string]int{},
	}
	for i := range stormAddresses {
		s.b.Subscribe(stormAddress(i), s.handle, &amqpflow.SubscribeOptions{Credit: 20, Workers: 1 + i})
	}
	require.NoError(t, s.server.Connect(t.Context(), s.b))
	return s
}

func (s *storm) handle(_ context.Context, d *amqpflow.Delivery) error {
	body := d.Data()
	for _, octet := range body { // whole and not mixed
		if octet != body[0] {
			return amqpflow.FailFast(fmt.Errorf("a body of %d octets is mixed", len(body)))
		}
	}
	s.mu.Lock()
	s.received[d.MessageID()]++
	s.mu.Unlock()
	return nil
}

// message is the i-th of a goroutine: what is shared, or a body of its own.
func (s *storm) message(g, i int) (*amqpflow.PublishOptions, any) {
	o := &amqpflow.PublishOptions{MessageID: fmt.Sprintf("%d-%d", g, i), Headers: s.headers}
	if i%2 != 0 {
		return o, s.shared
	}
	return o, bytes.Repeat([]byte{byte(g)}, 1<<rand.IntN(18))
}

func (s *storm) assertUnchanged(t *testing.T) {
	assert.Equal(t, map[string]any{"c": "d"}, s.shared.ApplicationProperties)
	assert.Nil(t, s.shared.Properties)
}

// Many goroutines, few addresses, one message and one map of headers that all
// of them share, with subscriptions that come and go meanwhile: each message
// arrives once, whole, and nobody writes to what is not theirs (under the race
// detector).
func TestFieldReport_B44_concurrentUse(t *testing.T) {
	const each = 40
	s := newStorm(t)
	b, server := s.b, s.server

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for g := range stormers {
		wg.Go(func() {
			for i := range each {
				o, v := s.message(g, i)
				if i%3 == 0 {
					assert.NoError(t, b.Publisher().Publish(ctx, stormAddress(g+i), v, o))
					continue
				}
				receipt, err := b.Publisher().Send(ctx, stormAddress(g+i), v, o)
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
			sub := b.Subscribe(stormAddress(i), s.handle, &amqpflow.SubscribeOptions{Credit: 5})
			assert.NoError(t, sub.Attached(ctx))
			assert.NoError(t, sub.Close(ctx))
		}
	})
	wg.Wait()
	require.NoError(t, b.Publisher().Flush(ctx))
	require.NoError(t, server.Idle(ctx))
	require.NoError(t, b.Shutdown(ctx))
	require.NoError(t, server.Close(), "no frame broke a rule")
	assert.Len(t, s.received, stormers*each)
	for id, n := range s.received {
		assert.Equal(t, 1, n, id)
	}
	s.assertUnchanged(t)
}
