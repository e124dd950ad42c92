package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// throughDisposition encodes s in a disposition and decodes that.
func throughDisposition(t *testing.T, s State) State {
	t.Helper()
	var d Disposition
	require.NoError(t, d.Decode((&Disposition{State: s}).Append(nil)))
	return d.State
}

func TestState_goldenOctets(t *testing.T) {
	for in, s := range map[string]State{
		"40":                            {},
		"00 53 23 c0 05 02 52 01 53 02": {Kind: StateReceived, SectionNumber: 1, SectionOffset: 2},
		"00 53 24 45":                   {Kind: StateAccepted},
		"00 53 25 45":                   {Kind: StateRejected},
		"00 53 25 c0 0b 01 00 53 1d c0 05 01 a3 02 'cc'": {Kind: StateRejected, Error: &Error{Condition: "cc"}},
		"00 53 26 45":             {Kind: StateReleased},
		"00 53 27 45":             {Kind: StateModified},
		"00 53 27 c0 02 01 41":    {Kind: StateModified, DeliveryFailed: true},
		"00 53 27 c0 03 02 40 41": {Kind: StateModified, UndeliverableHere: true},
		"00 53 27 c0 0a 03 41 41 c1 05 02 a3 01 'k' 43": {Kind: StateModified, DeliveryFailed: true, UndeliverableHere: true, Annotations: Map{{Symbol("k"), uint32(0)}}},
		"00 53 33 c0 05 01 a0 02 'id'":                  {Kind: StateDeclared, TxnID: []byte("id")},
		"00 53 34 c0 05 01 a0 02 'id'":                  {Kind: StateTransactional, TxnID: []byte("id")},
		"00 53 34 c0 09 02 a0 02 'id' 00 53 24 45":      {Kind: StateTransactional, TxnID: []byte("id"), Outcome: &State{Kind: StateAccepted}},
	} {
		assert.Equal(t, octets(t, in), AppendState(nil, &s), in)
		assert.Equal(t, s, throughDisposition(t, s), in)
	}
}

func TestState_otherLegalForms(t *testing.T) {
	for in, want := range map[string]State{
		"00 53 24 c0 01 00":                      {Kind: StateAccepted},
		"00 53 24 d0 00 00 00 04 00 00 00 00":    {Kind: StateAccepted},
		"00 80 00 00 00 00 00 00 00 24 45":       {Kind: StateAccepted},
		"00 a3 12 'amqp:accepted:list' 45":       {Kind: StateAccepted},
		"00 a3 12 'amqp:released:list' c0 01 00": {Kind: StateReleased},
		"00 53 27 c0 05 02 56 00 56 01":          {Kind: StateModified, UndeliverableHere: true},
		"00 53 27 c0 04 03 42 42 40":             {Kind: StateModified},
		"00 53 25 c0 02 01 40":                   {Kind: StateRejected},
		"00 53 99 45":                            {Kind: StateUnknown},
		"00 a3 07 'vendor:' a1 01 'x'":           {Kind: StateUnknown},
		"00 80 00 00 00 01 00 00 00 24 45":       {Kind: StateUnknown}, // another domain's 0x24
		"00 53 75 a0 00":                         {Kind: StateUnknown},
	} {
		body := composite(t, "15 | 41 | 43 | 40 | 40 | "+in)
		var d Disposition
		require.NoError(t, d.Decode(body), in)
		assert.Equal(t, want, d.State, in)
	}
}

func TestState_malformed(t *testing.T) {
	for in, why := range map[string]string{
		"45":                            "where a described value is due",
		"00 a1 01 'x' 45":               "descriptor of format code 0xa1",
		"00 53 24 40":                   "is no list",
		"00 53 24 c0 02 01 41":          "1 fields too many",
		"00 53 23 45":                   "mandatory",
		"00 53 23 c0 02 01 43":          "mandatory",
		"00 53 23 c0 03 02 43 43":       "is no ulong",
		"00 53 25 c0 02 01 41":          "where a described value is due",
		"00 53 25 c0 05 01 00 53 24 45": "where error is due",
		"00 53 27 c0 03 01 52 01":       "is no boolean",
		"00 53 27 c0 04 03 41 41 45":    "is no map",
		"00 53 33 45":                   "mandatory",
		"00 53 34 45":                   "mandatory",
		"00 53 34 c0 05 02 a0 00 41":    "ends in the middle",
		"00 53 34 c0 0b 02 a0 00 00 53 34 c0 03 01 a0 00": "transactional state as an outcome",
	} {
		body := composite(t, "15 | 41 | 43 | 40 | 40 | "+in)
		var d Disposition
		err := d.Decode(body)
		malformedInput(t, err, in)
		assert.ErrorContains(t, err, why, in)
	}
}

func TestState_terminal(t *testing.T) {
	for want, kinds := range map[bool][]StateKind{
		true:  {StateAccepted, StateRejected, StateReleased, StateModified, StateDeclared},
		false: {StateNone, StateReceived, StateTransactional, StateUnknown},
	} {
		for _, k := range kinds {
			assert.Equal(t, want, (&State{Kind: k}).Terminal(), k)
		}
	}
	assert.True(t, (&State{Kind: StateTransactional, Outcome: &State{Kind: StateReleased}}).Terminal())
}

func TestState_transactionIDIsACopy(t *testing.T) {
	body := (&Disposition{State: State{Kind: StateDeclared, TxnID: []byte("id")}}).Append(nil)
	var d Disposition
	require.NoError(t, d.Decode(body))
	clear(body)
	assert.Equal(t, "id", string(d.State.TxnID))
}

func TestAppendState_withoutMeaningIsNull(t *testing.T) {
	assert.Equal(t, []byte{0x40}, AppendState(nil, nil))
	assert.Equal(t, []byte{0x40}, AppendState(nil, &State{Kind: StateUnknown}))
	loop := &State{Kind: StateTransactional, TxnID: []byte("t")}
	loop.Outcome = loop
	assert.Equal(t, octets(t, "00 53 34 c0 04 01 a0 01 't'"), AppendState(nil, loop))
}
