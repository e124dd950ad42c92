package amqpflow

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

var testUUID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func TestToGo_everyTypeOfTheWire(t *testing.T) {
	when := time.UnixMilli(1_700_000_000_123).UTC()
	for _, tc := range []struct{ in, want any }{
		{nil, nil},
		{true, true},
		{uint8(1), uint8(1)},
		{uint16(2), uint16(2)},
		{uint32(3), uint32(3)},
		{uint64(4), uint64(4)},
		{int8(-1), int8(-1)},
		{int16(-2), int16(-2)},
		{int32(-3), int32(-3)},
		{int64(-4), int64(-4)},
		{float32(1.5), float32(1.5)},
		{2.5, 2.5},
		{"s", "s"},
		{[]byte("b"), []byte("b")},
		{when, when},
		{wire.Symbol("sym"), "sym"},
		{wire.UUID(testUUID), amqp.UUID(testUUID)},
		{wire.Char('日'), '日'},
		{wire.Decimal32{1}, [4]byte{1}},
		{wire.Decimal64{1}, [8]byte{1}},
		{wire.Decimal128{1}, [16]byte{1}},
		{wire.List{wire.Symbol("a"), nil, int8(1)}, []any{"a", nil, int8(1)}},
		{wire.Array{Elems: []any{wire.Symbol("a")}}, []any{"a"}},
		{wire.Map{{Key: "k", Value: wire.Symbol("v")}}, map[string]any{"k": "v"}},
		{wire.Map{{Key: wire.Symbol("k"), Value: wire.List{}}}, map[string]any{"k": []any{}}},
		{wire.Map{{Key: uint64(1), Value: "v"}, {Key: "k", Value: "w"}}, map[any]any{uint64(1): "v", "k": "w"}},
		{wire.Described{Descriptor: wire.Symbol("d"), Value: wire.Symbol("v")}, "v"},
	} {
		assert.Equal(t, tc.want, toGo(tc.in), "%T", tc.in)
	}
}

// A key that no Go map can hold would panic.
func TestToGo_dropsKeysThatCannotStandInAMap(t *testing.T) {
	m := wire.Map{
		{Key: []byte("b"), Value: 1},
		{Key: wire.List{"x"}, Value: 2},
		{Key: wire.Map{{Key: "a", Value: "b"}}, Value: 3},
		{Key: wire.Map{{Key: uint8(1), Value: "b"}}, Value: 4},
		{Key: wire.Described{Descriptor: uint64(1), Value: []byte("b")}, Value: 5},
		{Key: uint8(7), Value: "kept"},
		{Key: nil, Value: "null"},
	}
	assert.Equal(t, map[any]any{uint8(7): "kept", nil: "null"}, toGo(m))
}

func TestFromGo_comesBackTheSame(t *testing.T) {
	when := time.UnixMilli(1_700_000_000_123).UTC()
	for _, v := range []any{
		nil, true, uint8(1), uint16(2), uint32(3), uint64(4), int8(-1), int16(-2), int32(-3), int64(-4),
		float32(1.5), 2.5, "s", []byte("b"), when, amqp.UUID(testUUID),
		[]any{"a", int8(1), []any{}}, map[string]any{"k": amqp.UUID(testUUID)},
	} {
		out, err := encodable("v", v)
		require.NoError(t, err, "%T", v)
		encoded, err := wire.AppendValue(nil, out)
		require.NoError(t, err, "%T", v)
		assert.Equal(t, v, goValue(encoded), "%T", v)
	}
	for in, want := range map[any]any{amqp.Symbol("s"): "s", 5: int64(5), uint(6): uint64(6)} {
		out, err := encodable("v", in)
		require.NoError(t, err)
		encoded, err := wire.AppendValue(nil, out)
		require.NoError(t, err)
		assert.Equal(t, want, goValue(encoded), "%T", in)
	}
}

func TestEncodable_refusesWhatHasNoType(t *testing.T) {
	loop := map[string]any{}
	loop["again"] = loop
	for _, v := range []any{
		struct{}{}, make(chan int), func() {}, complex(1, 2), (*int)(nil), new(order), []any{struct{}{}},
		map[string]any{"x": make(chan int)}, errors.New("x"), "bad \xff utf-8",
	} {
		_, err := encodable("name", v)
		if assert.Error(t, err, "%T", v) {
			assert.Contains(t, err.Error(), `"name"`)
		}
	}
}

func TestMarshalable_isWhatGoAMQPCanEncode(t *testing.T) {
	for _, m := range []map[string]any{
		nil, {}, {"a": "b", "n": int64(1), "u": uint32(2), "b": true, "l": []any{"x"}},
	} {
		assert.NoError(t, marshalable(m), "%v", m)
	}
	for _, m := range []map[string]any{
		{"": "x"}, {"a": struct{}{}}, {"a": make(chan int)}, {"a": (*int)(nil)}, {"é": "x"},
		{"a": map[string]any{"b": struct{}{}}},
	} {
		assert.Error(t, marshalable(m), "%v", m)
	}
}

func TestAnnotationMap_keys(t *testing.T) {
	for _, key := range []any{"x-a", amqp.Symbol("x-a")} {
		m, err := annotationMap(amqp.Annotations{key: "v"})
		require.NoError(t, err)
		assert.Equal(t, wire.Map{{Key: wire.Symbol("x-a"), Value: "v"}}, m)
	}
	for _, key := range []any{"", "a", "x-", "X-a", "amqp:x", uint64(1), int64(1), 1, struct{}{}, "x-é"} {
		_, err := annotationMap(amqp.Annotations{key: "v"})
		if assert.Error(t, err, "%v", key) {
			assert.Contains(t, err.Error(), "reserved", "%v", key)
		}
	}
}

// Whoever asks for the peer's word gets go-amqp's type, whatever way it came.
func TestGoError_givesThePeersErrorInGoAMQPsType(t *testing.T) {
	lost := fmt.Errorf("%w: %w", ErrLinkLost, &dataplane.PeerError{
		Performative: "detach", Closed: true,
		Err: &wire.Error{Condition: "amqp:not-found", Description: "gone", Info: wire.Map{{Key: wire.Symbol("k"), Value: wire.Symbol("v")}}},
	})
	err := goError(lost)
	require.ErrorIs(t, err, ErrLinkLost)
	var remote *amqp.Error
	require.ErrorAs(t, err, &remote)
	assert.Equal(t, &amqp.Error{Condition: amqp.ErrCondNotFound, Description: "gone", Info: map[string]any{"k": "v"}}, remote)
	assert.Equal(t, lost.Error(), err.Error())

	bare := &dataplane.PeerError{Performative: "detach"}
	assert.Equal(t, error(bare), goError(bare))
	assert.Equal(t, errCause, goError(errCause))
	assert.NoError(t, goError(nil))
}
