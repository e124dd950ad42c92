package main

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fromEnv is a number that the battery has given, or otherwise.
func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// tell passes the counts on to the battery.
func tell(t *testing.T, r *result) {
	t.Helper()
	if file := os.Getenv(resultEnv); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(r.format()), 0o600))
	}
	t.Logf("%d runs, %d faults, %d published, %d confirmed, %d attempts", r.runs, r.faults, r.verdict.published, r.verdict.confirmed, r.verdict.attempts)
}

func TestResult_passesItsCountsOn(t *testing.T) {
	r := &result{runs: 3, faults: 4, verdict: verdict{published: 10, confirmed: 9, dead: 2}}
	var back result
	require.NoError(t, back.parse(r.format()))
	assert.Equal(t, r, &back)
}
