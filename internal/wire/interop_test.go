package wire

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	when = time.Date(2024, 2, 29, 12, 30, 15, 678_000_000, time.UTC)

	// interopValues pairs what go-amqp encodes with what we decode from it. back is
	// what go-amqp decodes from our encoding of that, where it is not the first.
	interopValues = []struct{ theirs, ours, back any }{
		{true, true, nil},
		{false, false, nil},
		{uint8(200), uint8(200), nil},
		{uint16(60000), uint16(60000), nil},
		{uint32(0), uint32(0), nil},
		{uint32(255), uint32(255), nil},
		{uint32(math.MaxUint32), uint32(math.MaxUint32), nil},
		{uint64(0), uint64(0), nil},
		{uint64(255), uint64(255), nil},
		{uint64(math.MaxUint64), uint64(math.MaxUint64), nil},
		{uint(5), uint64(5), uint64(5)},
		{int8(-100), int8(-100), nil},
		{int16(-30000), int16(-30000), nil},
		{int32(-1), int32(-1), nil},
		{int32(math.MinInt32), int32(math.MinInt32), nil},
		{int64(-1), int64(-1), nil},
		{int64(math.MaxInt64), int64(math.MaxInt64), nil},
		{int(-5), int64(-5), int64(-5)},
		{float32(1.5), float32(1.5), nil},
		{math.Pi, math.Pi, nil},
		{when, when, local(when)},
		{amqp.UUID{1, 15: 16}, UUID{1, 15: 16}, nil},
		{[]byte("bin"), []byte("bin"), nil},
		{[]byte(long), []byte(long), nil},
		{"", "", nil},
		{"Grüße", "Grüße", nil},
		{long, long, nil},
		{amqp.Symbol("sym"), Symbol("sym"), "sym"},
		{amqp.Symbol(long), Symbol(long), long},
	}

	// interopCompounds are of the types that only a value or sequence body may have.
	interopCompounds = []struct{ theirs, ours, back any }{
		{amqp.Null{}, nil, nil},
		{[]any{}, List{}, []any(nil)},
		{[]any{"a", uint32(1), nil, []any{true}}, List{"a", uint32(1), nil, List{true}}, nil},
		{map[string]any{"a": int64(1)}, Map{{"a", int64(1)}}, nil},
		{map[amqp.Symbol]any{"a": "b"}, Map{{Symbol("a"), "b"}}, map[string]any{"a": "b"}},
		{map[any]any{uint32(7): "b"}, Map{{uint32(7), "b"}}, nil},
		{[]int8{-1, 2}, Array{Code: fmtByte, Elems: []any{int8(-1), int8(2)}}, nil},
		{[]uint16{1, 2}, Array{Code: fmtUshort, Elems: []any{uint16(1), uint16(2)}}, nil},
		{[]int16{-1, 2}, Array{Code: fmtShort, Elems: []any{int16(-1), int16(2)}}, nil},
		{[]uint32{1, 2}, Array{Code: fmtSmallUint, Elems: []any{uint32(1), uint32(2)}}, nil},
		{[]uint32{1, 256}, Array{Code: fmtUint, Elems: []any{uint32(1), uint32(256)}}, nil},
		{[]int32{-1, 2}, Array{Code: fmtSmallInt, Elems: []any{int32(-1), int32(2)}}, nil},
		{[]int32{-1000, 1000}, Array{Code: fmtInt, Elems: []any{int32(-1000), int32(1000)}}, nil},
		{[]uint64{1, 2}, Array{Code: fmtSmallUlong, Elems: []any{uint64(1), uint64(2)}}, nil},
		{[]uint64{1, 1 << 60}, Array{Code: fmtUlong, Elems: []any{uint64(1), uint64(1 << 60)}}, nil},
		{[]int64{-1, 2}, Array{Code: fmtSmallLong, Elems: []any{int64(-1), int64(2)}}, nil},
		{[]int64{-1, 1 << 60}, Array{Code: fmtLong, Elems: []any{int64(-1), int64(1 << 60)}}, nil},
		{[]float32{1.5}, Array{Code: fmtFloat, Elems: []any{float32(1.5)}}, nil},
		{[]float64{-1.5}, Array{Code: fmtDouble, Elems: []any{-1.5}}, nil},
		{[]bool{true, false}, Array{Code: fmtBool, Elems: []any{true, false}}, nil},
		{[]string{"a", "", "c"}, Array{Code: fmtStr8, Elems: []any{"a", "", "c"}}, nil},
		{[]string{long}, Array{Code: fmtStr32, Elems: []any{long}}, nil},
		{[]amqp.Symbol{"a", "b"}, Array{Code: fmtSym8, Elems: []any{Symbol("a"), Symbol("b")}}, nil},
		{[][]byte{{1}, {}}, Array{Code: fmtBin8, Elems: []any{[]byte{1}, []byte{}}}, [][]byte{{1}, nil}},
		{[]time.Time{when}, Array{Code: fmtTimestamp, Elems: []any{when}}, nil},
		{[]amqp.UUID{{1}, {2}}, Array{Code: fmtUUID, Elems: []any{UUID{1}, UUID{2}}}, nil},
		{[]map[any]any{{"a": "b"}}, Array{Code: fmtMap32, Elems: []any{Map{{"a", "b"}}}}, nil},
		{&amqp.Error{Condition: "c", Description: "d"}, Described{uint64(0x1d), List{Symbol("c"), "d"}}, nil},
		{&amqp.StateAccepted{}, Described{uint64(0x24), List{}}, nil},
	}
)

func theirBytes(t *testing.T, m *amqp.Message) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	require.NoError(t, err)
	return b
}

func theirMessage(t *testing.T, b []byte) *amqp.Message {
	t.Helper()
	m := new(amqp.Message)
	require.NoError(t, m.UnmarshalBinary(b))
	return m
}

func TestInterop_valuesFromGoAMQP(t *testing.T) {
	for _, c := range interopValues {
		var s Sections
		require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{
			ApplicationProperties: map[string]any{"k": c.theirs},
			Annotations:           amqp.Annotations{"x": c.theirs},
			DeliveryAnnotations:   amqp.Annotations{"x": c.theirs},
			Value:                 c.theirs,
			Footer:                amqp.Annotations{"x": c.theirs},
		})), "%T", c.theirs)
		app, err := DecodeMap(s.ApplicationProperties)
		require.NoError(t, err)
		assert.Equal(t, Map{{"k", c.ours}}, app)
		for _, b := range [][]byte{s.MessageAnnotations, s.DeliveryAnnotations, s.Footer} {
			m, err := DecodeMap(b)
			require.NoError(t, err)
			assert.Equal(t, Map{{Symbol("x"), c.ours}}, m)
		}
		v, _, err := DecodeValue(s.Value)
		require.NoError(t, err)
		assert.Equal(t, c.ours, v)
	}
	for _, c := range interopCompounds {
		var s Sections
		require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Value: c.theirs})), "%T", c.theirs)
		v, _, err := DecodeValue(s.Value)
		require.NoError(t, err)
		assert.Equal(t, c.ours, v, "%T", c.theirs)
	}
}

func TestInterop_valuesToGoAMQP(t *testing.T) {
	for _, c := range append(interopValues, interopCompounds...) {
		want := c.back
		if want == nil && c.ours != nil {
			want = c.theirs
		}
		b, err := AppendSection(nil, CodeApplicationProperties, Map{{"k", c.ours}})
		require.NoError(t, err)
		b, err = AppendAMQPValue(b, c.ours)
		require.NoError(t, err)
		b, err = AppendSection(b, CodeFooter, Map{{Symbol("x"), c.ours}})
		require.NoError(t, err)
		m := theirMessage(t, b)
		assert.Equal(t, want, m.ApplicationProperties["k"], "%T", c.theirs)
		assert.Equal(t, want, m.Value, "%T", c.theirs)
		assert.Equal(t, want, m.Footer["x"], "%T", c.theirs)
	}
}

func TestInterop_annotationKeys(t *testing.T) {
	var s Sections
	require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Annotations: amqp.Annotations{int64(5): "v"}})))
	m, err := DecodeMap(s.MessageAnnotations)
	require.NoError(t, err)
	assert.Equal(t, Map{{int64(5), "v"}}, m)

	b, err := AppendSection(nil, CodeMessageAnnotations, Map{{Symbol("s"), int32(1)}, {uint64(7), int32(2)}, {int64(8), int32(3)}})
	require.NoError(t, err)
	assert.Equal(t, amqp.Annotations{"s": int32(1), uint64(7): int32(2), int64(8): int32(3)}, theirMessage(t, b).Annotations)
}

// local is what go-amqp makes of a timestamp.
func local(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }

var theirProperties = amqp.MessageProperties{
	MessageID: "id", UserID: []byte("guest"), To: new("to"), Subject: new("subject"), ReplyTo: new("reply"), CorrelationID: uint64(300),
	ContentType: new("application/json"), ContentEncoding: new("gzip"),
	AbsoluteExpiryTime: new(local(fullProperties.AbsoluteExpiryTime)), CreationTime: new(local(fullProperties.CreationTime)),
	GroupID: new("group"), GroupSequence: new(uint32(0)), ReplyToGroupID: new("rg"),
}

func TestInterop_properties(t *testing.T) {
	var s Sections
	require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Properties: &theirProperties})))
	var p Properties
	require.NoError(t, p.Decode(s.Properties))
	assert.Equal(t, fullProperties, p)
	assert.Equal(t, &theirProperties, theirMessage(t, fullProperties.Append(nil)).Properties)

	for _, id := range []struct{ theirs, ours any }{
		{uint64(1), uint64(1)}, {uint64(1 << 40), uint64(1 << 40)}, {[]byte("b"), []byte("b")}, {"s", "s"}, {amqp.UUID{9}, UUID{9}},
	} {
		require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Properties: &amqp.MessageProperties{MessageID: id.theirs, CorrelationID: id.theirs}})))
		require.NoError(t, p.Decode(s.Properties))
		assert.Equal(t, Properties{MessageID: id.ours, CorrelationID: id.ours}, p)
		back := theirMessage(t, p.Append(nil)).Properties
		assert.Equal(t, id.theirs, back.MessageID)
		assert.Equal(t, id.theirs, back.CorrelationID)
	}
	require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Properties: &amqp.MessageProperties{}})))
	require.NoError(t, p.Decode(s.Properties))
	assert.Equal(t, Properties{}, p)
	assert.Equal(t, &amqp.MessageProperties{}, theirMessage(t, p.Append(nil)).Properties)
}

func TestInterop_header(t *testing.T) {
	for _, c := range []struct {
		theirs amqp.MessageHeader
		ours   Header
	}{
		{amqp.MessageHeader{Priority: 4}, Header{Priority: 4}},
		{amqp.MessageHeader{}, Header{}},
		{
			amqp.MessageHeader{Durable: true, Priority: 9, TTL: 1500 * time.Millisecond, FirstAcquirer: true, DeliveryCount: 70000},
			Header{Durable: true, Priority: 9, TTL: 1500, HasTTL: true, FirstAcquirer: true, DeliveryCount: 70000},
		},
	} {
		var s Sections
		require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Header: &c.theirs})))
		assert.True(t, s.HasHeader)
		assert.Equal(t, c.ours, s.Header)

		b := c.ours.Append(nil)
		back := theirMessage(t, b).Header
		want := c.theirs
		if len(b) < 8 && want.Priority == DefaultPriority {
			want.Priority = back.Priority // go-amqp reads 0 where the field is not there at all
		}
		assert.Equal(t, &want, back)
	}
}

func TestInterop_bodies(t *testing.T) {
	for _, data := range [][][]byte{{{}}, {[]byte("a")}, {[]byte("a"), {}, []byte(long)}, {[]byte(strings.Repeat("x", 70000))}} {
		var s Sections
		require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Data: data})))
		assert.Equal(t, len(data), s.DataCount)
		var b, all []byte
		for _, d := range data {
			b, all = AppendData(b, d), append(all, d...)
		}
		assert.Equal(t, all, s.AppendBody(nil))
		assert.Equal(t, data, theirMessage(t, b).Data)
	}
	sequences := [][]any{{"a", int64(1)}, nil, {true}}
	var s Sections
	require.NoError(t, s.Parse(theirBytes(t, &amqp.Message{Sequence: sequences})))
	l, err := s.Sequences()
	require.NoError(t, err)
	assert.Equal(t, []List{{"a", int64(1)}, {}, {true}}, l)
	var b []byte
	for _, q := range l {
		b, err = AppendSequence(b, q)
		require.NoError(t, err)
	}
	assert.Equal(t, sequences, theirMessage(t, b).Sequence)
}

func TestInterop_wholeMessage(t *testing.T) {
	m := &amqp.Message{
		Header:                &amqp.MessageHeader{Durable: true, Priority: 5},
		DeliveryAnnotations:   amqp.Annotations{"d": true},
		Annotations:           amqp.Annotations{"m": uint32(3)},
		Properties:            &theirProperties,
		ApplicationProperties: map[string]any{"k": local(when)},
		Data:                  [][]byte{[]byte("body")},
		Footer:                amqp.Annotations{"f": "x"},
	}
	var s Sections
	require.NoError(t, s.Parse(theirBytes(t, m)))
	checkParsed(t, theirBytes(t, m))

	// Taken apart and put together again it is the same message to go-amqp.
	b := s.Header.Append(nil)
	for code, raw := range [][]byte{1: s.DeliveryAnnotations, 2: s.MessageAnnotations, 3: s.Properties, 4: s.ApplicationProperties, 5: nil, 8: s.Footer} {
		if code == 5 {
			b = AppendData(b, s.AppendBody(nil))
		}
		if raw != nil {
			b = append(append(b, 0, fmtSmallUlong, byte(CodeHeader)+byte(code)), raw...)
		}
	}
	assert.Equal(t, m, theirMessage(t, b))
}
