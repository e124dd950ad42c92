package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/backoff"
)

func TestPolicy_delayDoublesUpToTheCap(t *testing.T) {
	p := backoff.Policy{Min: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: func(d time.Duration) time.Duration { return d }}
	var got []time.Duration
	for failed := range 12 {
		got = append(got, p.Delay(failed))
	}
	ms := time.Millisecond
	assert.Equal(t, []time.Duration{
		100 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 30000 * ms, 30000 * ms,
	}, got)
	assert.Equal(t, 30*time.Second, p.Delay(1<<30), "however often it failed")
}

func TestPolicy_jitterIsFull(t *testing.T) {
	p := backoff.Policy{Min: 10, Max: 1000}
	low, high := time.Duration(1000), time.Duration(0)
	for range 100_000 {
		d := p.Delay(3)
		low, high = min(low, d), max(high, d)
	}
	assert.Equal(t, time.Duration(0), low)
	assert.Equal(t, time.Duration(40), high)
}

func TestPolicy_waitIsExactAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p backoff.Policy
		started := time.Now()
		require.NoError(t, p.Wait(t.Context(), 5*time.Second))
		assert.Equal(t, 5*time.Second, time.Since(started))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started = time.Now()
		require.ErrorIs(t, p.Wait(ctx, time.Hour), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(started))
		require.ErrorIs(t, p.Wait(ctx, 0), context.DeadlineExceeded, "it has ended already")
	})
}

func TestPolicy_clockCanBeReplaced(t *testing.T) {
	var slept time.Duration
	p := backoff.Policy{Sleep: func(_ context.Context, d time.Duration) error { slept += d; return nil }}
	require.NoError(t, p.Wait(t.Context(), time.Hour))
	assert.Equal(t, time.Hour, slept)
}
