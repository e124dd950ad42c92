package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkLookups compares LookupProperty with what Decode found.
func checkLookups(tb testing.TB, b []byte, p *Properties) {
	tb.Helper()
	texts := map[int]string{
		PropTo: p.To, PropSubject: p.Subject, PropReplyTo: p.ReplyTo, PropContentType: p.ContentType,
		PropContentEncoding: p.ContentEncoding, PropGroupID: p.GroupID, PropReplyToGroupID: p.ReplyToGroupID,
	}
	for i, want := range texts {
		v, ok := LookupProperty(b, i)
		raw, isText := RawBytes(v)
		require.Equal(tb, ok, isText)
		require.Equal(tb, want, string(raw))
	}
	for i, want := range map[int]any{PropMessageID: p.MessageID, PropCorrelationID: p.CorrelationID} {
		v, ok := LookupProperty(b, i)
		require.Equal(tb, want != nil, ok)
		if ok {
			got, rest, err := DecodeValue(v)
			require.NoError(tb, err)
			require.Empty(tb, rest)
			require.Equal(tb, want, got)
		}
	}
}

var fullProperties = Properties{
	MessageID: "id", UserID: []byte("guest"), To: "to", Subject: "subject", ReplyTo: "reply", CorrelationID: uint64(300),
	ContentType: "application/json", ContentEncoding: "gzip",
	AbsoluteExpiryTime: time.UnixMilli(1700000000123).UTC(), CreationTime: time.UnixMilli(-1).UTC(),
	GroupID: "group", GroupSequence: Some(0), ReplyToGroupID: "rg",
}

func TestProperties_goldenOctets(t *testing.T) {
	assert.Equal(t, octets(t, "00 53 73 45"), (&Properties{}).Append(nil))
	assert.Equal(t, composite(t, `73 | a1 02 'id' | a0 05 'guest' | a1 02 'to' | a1 07 'subject' | a1 05 'reply' | 80 00 00 00 00 00 00 01 2c
		| a3 10 'application/json' | a3 04 'gzip' | 83 00 00 01 8b cf e5 68 7b | 83 ffffffffffffffff | a1 05 'group' | 43 | a1 02 'rg'`),
		fullProperties.Append(nil))
}

func TestProperties_roundTrip(t *testing.T) {
	for _, p := range []Properties{
		{}, fullProperties, {MessageID: UUID{1, 2}}, {MessageID: []byte{}}, {MessageID: ""}, {MessageID: uint64(0), CorrelationID: []byte("x")},
		{GroupSequence: Some(1<<32 - 1)}, {ReplyToGroupID: long, To: long},
	} {
		b := p.Append([]byte("x"))
		got := fullProperties
		require.NoError(t, got.Decode(b[4:]))
		assert.Equal(t, p, got)
		var s Sections
		require.NoError(t, s.Parse(b[1:]))
		assert.Equal(t, b[4:], s.Properties)
		checkLookups(t, s.Properties, &p)
	}
}

func TestProperties_textsInEitherForm(t *testing.T) {
	s := mustParse(t, "00 53 73 c0 14 07 40 40 a3 02 'to' a3 01 's' 40 40 a1 06 'text/x'")
	var p Properties
	require.NoError(t, p.Decode(s.Properties))
	assert.Equal(t, Properties{To: "to", Subject: "s", ContentType: "text/x"}, p)
}

func TestProperties_leaveOffAnIDOfAnotherType(t *testing.T) {
	for _, id := range []any{1, int64(1), uint32(1), Symbol("x"), struct{}{}} {
		assert.False(t, IsMessageID(id))
		assert.Equal(t, octets(t, "00 53 73 45"), (&Properties{MessageID: id, CorrelationID: id}).Append(nil))
	}
	for _, id := range []any{nil, uint64(1), "x", []byte("x"), UUID{}} {
		assert.True(t, IsMessageID(id))
	}
}

func TestProperties_malformed(t *testing.T) {
	for in, why := range map[string]string{
		"c1 01 00":                            "is no list",
		"45 00":                               "behind them",
		"c0 03 01 52 01":                      "is no message id",
		"c0 02 01 53":                         "ends in the middle",
		"c0 04 02 40 a1 00":                   "is no binary",
		"c0 0e 0e" + strings.Repeat("40", 13): "",
		"c0 0f 0e" + strings.Repeat("40", 14): "1 fields too many",
		"c0 0c 0a" + strings.Repeat("40", 9) + "55 01": "is no timestamp",
	} {
		var p Properties
		err := p.Decode(octets(t, in))
		malformedInput(t, err, in)
		assert.ErrorContains(t, err, why, in)
	}
}

func TestProperties_nullAndNothingAreEmpty(t *testing.T) {
	for _, b := range [][]byte{nil, {}, {fmtNull}, {fmtList0}} {
		p := fullProperties
		require.NoError(t, p.Decode(b))
		assert.Equal(t, Properties{}, p)
	}
}

func TestHeader_goldenOctets(t *testing.T) {
	for in, h := range map[string]Header{
		"00 53 70 45":                                        {Priority: 4},
		"00 53 70 c0 02 01 41":                               {Priority: 4, Durable: true},
		"00 53 70 c0 04 02 40 50 00":                         {},
		"00 53 70 c0 04 03 40 40 43":                         {Priority: 4, HasTTL: true},
		"00 53 70 c0 0a 05 41 50 09 52 0a 41 70 00 00 01 2c": {Durable: true, Priority: 9, TTL: 10, HasTTL: true, FirstAcquirer: true, DeliveryCount: 300},
	} {
		want := octets(t, in)
		if len(want) > 4 {
			want[4] = byte(len(want) - 5)
		}
		assert.Equal(t, want, h.Append(nil))
		got := Header{Durable: true, TTL: 9, DeliveryCount: 9}
		require.NoError(t, got.Decode(want[3:]))
		assert.Equal(t, h, got)
		for n := 3; n < len(want); n++ {
			malformedInput(t, got.Decode(want[3:n:n]))
		}
		malformedInput(t, got.Decode(append(want[3:len(want):len(want)], 0)))
	}
	assert.Equal(t, (&Header{TTL: 5, HasTTL: true}).Append(nil), (&Header{TTL: 5}).Append(nil))
}

func TestLookupString(t *testing.T) {
	m := octets(t, "c1 17 0a a1 01 'a' 41 a3 01 'b' a1 01 'x' a0 01 'c' 43 53 01 42 a1 01 'c' 40")
	m[1] = byte(len(m) - 2)
	for key, want := range map[string]string{"a": "41", "b": "a1 01 'x'", "c": "40"} {
		v, ok := LookupString(m, key)
		require.True(t, ok, key)
		assert.Equal(t, octets(t, want), v)
	}
	for _, key := range []string{"", "d", "\x01"} {
		_, ok := LookupString(m, key)
		assert.False(t, ok, key)
	}
	for _, b := range [][]byte{nil, {fmtNull}, {fmtList0}, {fmtMap8}, {fmtMap8, 3, 2, 0xa1}, {fmtMap8, 3, 2, fmtStr8, 0}, {fmtMap8, 2, 2, fmtNull}} {
		_, ok := LookupString(b, "")
		assert.False(t, ok, "%x", b)
	}
}

func TestLookupProperty_onWhatIsNoProperties(t *testing.T) {
	for _, b := range [][]byte{nil, {fmtNull}, {fmtList0}, {fmtList8}, {fmtMap8, 1, 0}, {fmtList8, 2, 2, fmtStr8}, {fmtList8, 1, 1}, {fmtList8, 3, 2, fmtStr8, 5}} {
		for i := -1; i < 15; i++ {
			_, ok := LookupProperty(b, i)
			assert.False(t, ok, "%x", b)
		}
	}
}

func TestRawBytes(t *testing.T) {
	for in, want := range map[string]string{"a0 01 'x'": "x", "a1 01 'x'": "x", "a3 01 'x'": "x", "b0 00 00 00 01 'x'": "x", "a1 00": ""} {
		b, ok := RawBytes(octets(t, in))
		assert.True(t, ok, in)
		assert.Equal(t, want, string(b))
	}
	for _, in := range []string{"", "40", "53 01", "a1", "a1 02 'x'", "b1 00 00", "45"} {
		_, ok := RawBytes(octets(t, in))
		assert.False(t, ok, in)
	}
}
