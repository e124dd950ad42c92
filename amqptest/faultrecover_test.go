package amqptest

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// handled are the bodies that a handler has accepted.
type handled struct {
	mu  sync.Mutex
	ids map[string]int
}

func (h *handled) handle(_ context.Context, m *amqpflow.Message[string]) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids[m.Body]++
	return nil
}

func (h *handled) times(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[id]
}

// recovers holds that a client that is connected when f is set going publishes
// and handles again once f is lifted, has lost nothing that was confirmed, and
// has broken no rule.
func recovers(t *testing.T, f Fault) {
	t.Helper()
	s := newServer(t, &Options{Window: 16, MaxDeliveries: -1})
	h := handled{ids: map[string]int{}}
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: 10 * time.Second})
	amqpflow.Subscribe(b, "orders", h.handle)
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	require.NoError(t, s.Connect(soon(t), b))
	publish := func(id string, d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return b.Publisher().Publish(ctx, "orders", id)
	}
	require.NoError(t, s.Fault(f))
	var confirmed []string
	for i := range 30 {
		id := strconv.Itoa(i)
		if publish(id, 2*time.Second) == nil {
			confirmed = append(confirmed, id)
		}
		<-time.After(500 * time.Millisecond)
	}
	s.Heal()
	if f.kind == faultDropDisposition {
		// A Publish holds its link until the answer: only a loss ends that.
		require.NoError(t, s.Fault(Drop()))
	}
	<-time.After(time.Minute) // what is detected by silence, and the longest delay of a next attempt
	require.NoError(t, publish("last", time.Second), "%v", f)
	synctest.Wait()
	for _, id := range append(confirmed, "last") {
		assert.Positive(t, h.times(id), "%v: message %s is confirmed and lost", f, id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, b.Shutdown(ctx), "%v", f)
}

func TestFault_everyKindIsRecoveredFrom(t *testing.T) {
	for _, f := range everyFault() {
		for _, v := range variants(f) {
			if s := NewServer(); s.Fault(v) != nil {
				continue // does not go together
			}
			t.Run(v.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { recovers(t, v) })
			})
		}
	}
}

func TestFault_amqpflowSeesADeliveryBeyondItsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		require.NoError(t, s.Fault(OverSend("orders")))
		b := amqpflow.New("amqp://localhost")
		sub := b.Subscribe("orders", func(ctx context.Context, _ *amqpflow.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}, &amqpflow.SubscribeOptions{Credit: 1})
		require.NoError(t, s.Connect(t.Context(), b))
		<-sub.Done()
		require.ErrorIs(t, sub.Err(), amqpflow.ErrCreditExceeded)
		_ = b.Shutdown(soon(t)) // returns why the subscription has ended
		assert.Len(t, s.Messages("orders"), 3)
	})
}
