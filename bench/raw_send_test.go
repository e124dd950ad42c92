package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeepInFlight_waitsForTheOldest(t *testing.T) {
	for _, c := range []struct{ total, n, most int }{{10, 3, 3}, {2, 3, 2}, {5, 1, 1}, {0, 4, 0}} {
		sent, waited, most := 0, 0, 0
		err := keepInFlight(c.total, c.n,
			func() (int, error) {
				sent++
				most = max(most, sent-waited)
				return sent, nil
			},
			func(r int) error {
				waited++
				assert.Equal(t, waited, r, "in the order of the sends")
				return nil
			},
		)
		require.NoError(t, err)
		assert.Equal(t, c.total, sent)
		assert.Equal(t, c.total, waited)
		assert.Equal(t, c.most, most)
	}
}

func TestKeepInFlight_endsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	wait := func(int) error { return nil }
	assert.ErrorIs(t, keepInFlight(3, 2, func() (int, error) { return 0, broken }, wait), broken)
	sends := 0
	send := func() (int, error) { sends++; return sends, nil }
	assert.ErrorIs(t, keepInFlight(10, 2, send, func(int) error { return broken }), broken)
	assert.Equal(t, 2, sends)
}

func TestGroup_endsTogether(t *testing.T) {
	broken := errors.New("broken")
	for _, workers := range []int{1, 4} {
		err := share(t.Context(), scenario{workers: workers, count: 100}, func(ctx context.Context) error { return broken })
		assert.ErrorIs(t, err, broken)
	}
}
