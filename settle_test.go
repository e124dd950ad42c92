package amqpflow

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

var errCause = errors.New("cause")

func TestOutcomeOf_everyResult(t *testing.T) {
	for _, tc := range []struct {
		name   string
		result error
		want   Outcome
	}{
		{"nil", nil, Accepted},
		{"any error", errCause, Modified},
		{"Retry", Retry(errCause), Modified},
		{"Retry of nothing", Retry(nil), Modified},
		{"Reject", Reject(errCause), Rejected},
		{"Release", Release(), Released},
		{"FailFast", FailFast(errCause), OutcomeNone},
		{"wrapped", fmt.Errorf("handling: %w", Reject(errCause)), Rejected},
		{"joined", errors.Join(errCause, Release()), Released},
		{"the outer one wins", Retry(Reject(errCause)), Modified},
		{"by hand", &OutcomeError{Outcome: Accepted}, Accepted},
		{"a decode error chose none", &DecodeError{Err: errCause}, Modified},
		{"a panic chose none", &PanicError{Value: "x"}, Modified},
		{"a panic with an outcome", &PanicError{Value: Reject(errCause)}, Rejected},
	} {
		assert.Equal(t, tc.want, OutcomeOf(tc.result), tc.name)
	}
}

func TestOutcomeError_keepsItsCause(t *testing.T) {
	for _, err := range []error{Retry(errCause), Reject(errCause), FailFast(errCause)} {
		require.ErrorIs(t, err, errCause)
		assert.Contains(t, err.Error(), "cause")
		assert.ErrorIs(t, fmt.Errorf("more: %w", err), errCause)
	}
	assert.Equal(t, "released", Release().Error())
	assert.Equal(t, "rejected: cause", Reject(errCause).Error())
}

func TestOutcome_string(t *testing.T) {
	for o, want := range map[Outcome]string{
		OutcomeNone: "none", Accepted: "accepted", Rejected: "rejected", Released: "released", Modified: "modified",
		Outcome(9): "Outcome(9)",
	} {
		assert.Equal(t, want, o.String())
	}
}

func TestStateOf_plainOutcomes(t *testing.T) {
	for _, tc := range []struct {
		result  error
		state   *wire.State
		outcome Outcome
	}{
		{nil, &wire.State{Kind: wire.StateAccepted}, Accepted},
		{errCause, &wire.State{Kind: wire.StateModified, DeliveryFailed: true}, Modified},
		{Retry(errCause), &wire.State{Kind: wire.StateModified, DeliveryFailed: true}, Modified},
		{Release(), &wire.State{Kind: wire.StateReleased}, Released},
		{FailFast(errCause), nil, OutcomeNone},
		{&OutcomeError{Outcome: Accepted}, &wire.State{Kind: wire.StateAccepted}, Accepted},
	} {
		state, outcome, err := stateOf(tc.result)
		require.NoError(t, err)
		assert.Equal(t, tc.state, state, "%v", tc.result)
		assert.Equal(t, tc.outcome, outcome, "%v", tc.result)
	}
}

func TestStateOf_acceptedAllocatesNothing(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = stateOf(nil) }))
}

func TestStateOf_rejection(t *testing.T) {
	remote := &amqp.Error{Condition: amqp.ErrCondNotAllowed, Description: "no", Info: map[string]any{"a": "b"}}
	for _, tc := range []struct {
		name        string
		result      error
		condition   wire.Symbol
		description string
		info        wire.Map
	}{
		{"an error's text", Reject(errCause), "amqp:internal-error", "cause", nil},
		{"without an error", Reject(nil), "amqp:internal-error", "", nil},
		{"an amqp.Error's condition and info", Reject(fmt.Errorf("x: %w", remote)), "amqp:not-allowed", "x: " + remote.Error(), wire.Map{{Key: wire.Symbol("a"), Value: "b"}}},
		{
			"what is set by hand wins",
			&OutcomeError{Outcome: Rejected, Condition: "acme:bad", Description: "mine", Info: map[string]any{"n": 1}, Err: remote},
			"acme:bad", "mine", wire.Map{{Key: wire.Symbol("n"), Value: int64(1)}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state, outcome, err := stateOf(tc.result)
			require.NoError(t, err)
			assert.Equal(t, Rejected, outcome)
			require.NotNil(t, state.Error)
			assert.Equal(t, wire.StateRejected, state.Kind)
			assert.Equal(t, tc.condition, state.Error.Condition)
			assert.Equal(t, tc.description, state.Error.Description)
			assert.Equal(t, tc.info, state.Error.Info)
		})
	}
}

// A peer may ask for frames of 512 bytes, and a description of half a
// megabyte is of no use to anybody.
func TestStateOf_clipsDescriptionsToValidUTF8(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", 100_000),
		strings.Repeat("é", 5_000),
		"a" + strings.Repeat("é", 5_000),
		strings.Repeat("日", 5_000),
		"bad \xff\xfe bytes",
		strings.Repeat("\xff", 5_000),
	} {
		state, _, err := stateOf(Reject(errors.New(text)))
		require.NoError(t, err)
		assert.True(t, utf8.ValidString(state.Error.Description))
		assert.NotEmpty(t, state.Error.Description)
		frame := (&wire.Disposition{Role: wire.RoleReceiver, First: 1, Last: 2, Settled: true, State: *state}).Append(nil)
		assert.LessOrEqual(t, wire.FrameHeaderSize+len(frame), 512)
	}
}

func TestStateOf_modification(t *testing.T) {
	state, outcome, err := stateOf(&OutcomeError{
		Outcome: Modified, UndeliverableHere: true, Annotations: amqp.Annotations{"x-why": "because"},
	})
	require.NoError(t, err)
	assert.Equal(t, Modified, outcome)
	assert.Equal(t, &wire.State{
		Kind: wire.StateModified, DeliveryFailed: true, UndeliverableHere: true,
		Annotations: wire.Map{{Key: wire.Symbol("x-why"), Value: "because"}},
	}, state)
}

func TestStateOf_whatCannotBeEncodedIsARetry(t *testing.T) {
	for name, result := range map[string]*OutcomeError{
		"info value":                       {Outcome: Rejected, Info: map[string]any{"a": struct{}{}}},
		"info key":                         {Outcome: Rejected, Info: map[string]any{"": "x"}},
		"info key that is no symbol":       {Outcome: Rejected, Info: map[string]any{"é": "x"}},
		"condition that is no symbol":      {Outcome: Rejected, Condition: "größe"},
		"annotation key that is no symbol": {Outcome: Modified, Annotations: amqp.Annotations{"x-é": "x"}},
		"annotation value":                 {Outcome: Modified, Annotations: amqp.Annotations{"x-a": make(chan int)}},
		"annotation key":                   {Outcome: Modified, Annotations: amqp.Annotations{struct{}{}: "x"}},
		"reserved annotation key":          {Outcome: Modified, Annotations: amqp.Annotations{"a": "x"}},
		"outcome that is no value":         {Outcome: Outcome(17)},
	} {
		state, outcome, err := stateOf(result)
		require.Error(t, err, name)
		assert.Equal(t, Modified, outcome, name)
		assert.Equal(t, &wire.State{Kind: wire.StateModified, DeliveryFailed: true}, state, name)
	}
}

// What stateOf lets through must encode: the peer would end the session.
func TestStateOf_everyStateEncodesAndDecodes(t *testing.T) {
	for _, result := range []error{
		nil, errCause, Release(), Reject(errCause),
		Reject(&amqp.Error{Condition: "größe", Description: "x", Info: map[string]any{"k\xff": 1}}),
		&OutcomeError{Outcome: Rejected, Condition: "\xff", Description: "\xff"},
		&OutcomeError{Outcome: Modified, Annotations: amqp.Annotations{"x-é": "x"}},
	} {
		state, _, _ := stateOf(result)
		body := (&wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: *state}).Append(nil)
		var back wire.Disposition
		assert.NoError(t, back.Decode(body), "%v", result)
	}
}
