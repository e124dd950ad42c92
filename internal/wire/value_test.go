package wire

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// golden has every format code of section 1.6, and the two worked examples of
// sections 1.3 and 1.4. Where canon is empty the encoder writes the same octets.
var golden = []struct {
	wire, canon string
	value       any
}{
	{"40", "", nil},
	{"41", "", true},
	{"42", "", false},
	{"56 01", "41", true},
	{"56 00", "42", false},
	{"50 ff", "", uint8(255)},
	{"60 01 00", "", uint16(256)},
	{"43", "", uint32(0)},
	{"52 ff", "", uint32(255)},
	{"70 00 00 01 00", "", uint32(256)},
	{"70 00 00 00 00", "43", uint32(0)},
	{"70 ffffffff", "", uint32(math.MaxUint32)},
	{"44", "", uint64(0)},
	{"53 01", "", uint64(1)},
	{"80 00 00 00 00 00 00 01 00", "", uint64(256)},
	{"80 ffffffffffffffff", "", uint64(math.MaxUint64)},
	{"51 80", "", int8(-128)},
	{"61 ff fe", "", int16(-2)},
	{"54 ff", "", int32(-1)},
	{"54 80", "", int32(-128)},
	{"54 7f", "", int32(127)},
	{"71 00 00 00 80", "", int32(128)},
	{"71 80 00 00 00", "", int32(math.MinInt32)},
	{"55 ff", "", int64(-1)},
	{"55 80", "", int64(-128)},
	{"55 7f", "", int64(127)},
	{"81 ffffffffffffff 7f", "", int64(-129)},
	{"81 80 00 00 00 00 00 00 00", "", int64(math.MinInt64)},
	{"72 3f c0 00 00", "", float32(1.5)},
	{"82 bf f8 00 00 00 00 00 00", "", float64(-1.5)},
	{"74 01 02 03 04", "", Decimal32{1, 2, 3, 4}},
	{"84 01 02 03 04 05 06 07 08", "", Decimal64{1, 2, 3, 4, 5, 6, 7, 8}},
	{"94 01 02 03 04 05 06 07 08 01 02 03 04 05 06 07 08", "", Decimal128{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}},
	{"73 00 01 f6 00", "", Char('😀')},
	{"83 00 00 01 31 25 be 40 80", "", time.UnixMilli(0x13125be4080).UTC()},
	{"83 ffffffffffffffff", "", time.Date(1969, 12, 31, 23, 59, 59, 999_000_000, time.UTC)},
	{"98 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f", "", UUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
	{"a0 00", "", []byte{}},
	{"a0 02 01 02", "", []byte{1, 2}},
	{"b0 00 00 00 02 01 02", "a0 02 01 02", []byte{1, 2}},
	{"a1 00", "", ""},
	{"a1 06 'Grüße'", "", ""}, // length filled in below
	{"b1 00 00 00 01 61", "a1 01 61", "a"},
	{"a3 03 'foo'", "", Symbol("foo")},
	{"b3 00 00 00 03 'foo'", "a3 03 'foo'", Symbol("foo")},
	{"45", "", List{}},
	{"c0 01 00", "45", List{}},
	{"c0 04 02 40 52 07", "", List{nil, uint32(7)}},
	{"d0 00 00 00 06 00 00 00 02 41 42", "c0 03 02 41 42", List{true, false}},
	{"c1 01 00", "", Map{}},
	{"c1 06 02 a1 01 61 55 01", "", Map{{"a", int64(1)}}},
	{"d1 00 00 00 07 00 00 00 02 43 55 01", "c1 04 02 43 55 01", Map{{uint32(0), int64(1)}}},
	{"e0 04 02 52 01 02", "", Array{Code: 0x52, Elems: []any{uint32(1), uint32(2)}}},
	{"f0 00 00 00 07 00 00 00 02 52 01 02", "e0 04 02 52 01 02", Array{Code: 0x52, Elems: []any{uint32(1), uint32(2)}}},
	{"e0 02 00 a3", "", Array{Code: 0xa3}},
	{"e0 02 03 41", "", Array{Code: 0x41, Elems: []any{true, true, true}}},
	{"e0 06 01 c0 03 01 55 01", "", Array{Code: 0xc0, Elems: []any{List{int64(1)}}}},
	{"e0 05 01 00 53 24 45", "", Array{Code: 0x45, Descriptor: uint64(0x24), Elems: []any{List{}}}},
	{"00 53 24 45", "", Described{uint64(0x24), List{}}},
	{"00 a1 03 'URL' a1 1e 'http://example.org/hello-world'", "", Described{"URL", "http://example.org/hello-world"}},
	{
		"00 a3 11 'example:book:list' c0 40 03 a1 15 'AMQP for & by Dummies' e0 25 02 a1 0e 'Rob J. Godfrey' 13 'Rafael H. Schloming' 40", "",
		Described{Symbol("example:book:list"), List{
			"AMQP for & by Dummies",
			Array{Code: 0xa1, Elems: []any{"Rob J. Godfrey", "Rafael H. Schloming"}},
			nil,
		}},
	},
}

func TestValue_goldenOctets(t *testing.T) {
	for _, g := range golden {
		t.Run(g.wire, func(t *testing.T) {
			in := octets(t, g.wire)
			if strings.Contains(g.wire, "Grüße") {
				in[1], g.value = byte(len("Grüße")), "Grüße"
			}
			v, rest, err := DecodeValue(append(in, 0xee))
			require.NoError(t, err)
			assert.Equal(t, g.value, v)
			assert.Equal(t, []byte{0xee}, rest)

			canon := in
			if g.canon != "" {
				canon = octets(t, g.canon)
			}
			out, err := AppendValue([]byte{0xdd}, g.value)
			require.NoError(t, err)
			assert.Equal(t, append([]byte{0xdd}, canon...), out)

			for n := range in {
				_, err := SkipValue(in[:n:n])
				malformedInput(t, err, "cut to %d", n)
				_, _, err = DecodeValue(in[:n:n])
				malformedInput(t, err, "cut to %d", n)
			}
		})
	}
}

func TestDecodeValue_sharesNoMemoryWithItsInput(t *testing.T) {
	in := octets(t, "c0 0d 04 a0 01 61 a1 01 62 a3 01 63 c0 01 00")
	v, _, err := DecodeValue(in)
	require.NoError(t, err)
	clear(in)
	assert.Equal(t, List{[]byte("a"), "b", Symbol("c"), List{}}, v)
}

func TestDecodeValue_malformed(t *testing.T) {
	for in, why := range map[string]string{
		"3f":                            "format code 0x3f",
		"56 02":                         "boolean octet 0x02",
		"c0 00 40":                      "no room for a count",
		"d0 00 00 00 03 00 00 00 00":    "no room for a count",
		"c0 02 00 40":                   "behind the last item",
		"c0 02 02 40":                   "2 items in 1 octets",
		"c0 03 02 52 01":                "ends in the middle",
		"c0 02 01 52 01":                "ends in the middle", // the item runs over the list's end
		"c1 02 01 40":                   "map of 1 items",
		"d0 ffffffff 00 00 00 00":       "ends in the middle",
		"d0 00 00 00 05 ffffffff 40":    "4294967295 items",
		"b0 ffffffff 00":                "ends in the middle",
		"e0 01 00":                      "ends in the middle", // no constructor
		"e0 02 01 39":                   "array of unknown format code",
		"e0 03 02 52 01":                "2 elements of 1 octets in 1 octets",
		"e0 04 01 52 01 02":             "1 elements of 1 octets in 2 octets",
		"e0 03 01 56 02":                "boolean octet",
		"e0 04 01 a1 00 00":             "behind the last element",
		"e0 05 01 00 40 00 40":          "array of unknown format code 0x00", // described twice
		"f0 00 00 00 05 ffffffff 40":    "4294967295 elements without octets",
		"f0 00 00 00 05 00 00 40 01 43": "16385 elements without octets",
		"f0 00 00 00 06 ffffffff a1 00": "4294967295 elements in 1 octets",
		"f0 00 00 00 0d 20 00 00 01 80 00 00 00 00 00 00 00 00": "elements of 8 octets", // 32 bits of count × width wrap round
	} {
		_, err := SkipValue(octets(t, in))
		malformedInput(t, err, in)
		require.ErrorContains(t, err, why, in)
		v, _, err := DecodeValue(octets(t, in))
		malformedInput(t, err, in)
		assert.Nil(t, v)
	}
}

func TestDecodeValue_boundsEmptyElementsOverAllArrays(t *testing.T) {
	half := octets(t, "f0 00 00 00 05 00 00 20 00 45")
	two := append(octets(t, "d0 00 00 00 18 00 00 00 02"), append(half, half...)...)
	_, _, err := DecodeValue(two)
	require.NoError(t, err)

	three := append(octets(t, "d0 00 00 00 22 00 00 00 03"), append(append(half, half...), half...)...)
	_, _, err = DecodeValue(three)
	malformedInput(t, err)
}

// nested returns a value inside depth containers of one kind.
func nested(depth int, wrap func(any) any) any {
	var v any = uint8(1)
	for range depth {
		v = wrap(v)
	}
	return v
}

func TestValue_depthLimitIsTheSameBothWays(t *testing.T) {
	for name, wrap := range map[string]func(any) any{
		"list":       func(v any) any { return List{v} },
		"key":        func(v any) any { return Map{{v, nil}} },
		"value":      func(v any) any { return Map{{nil, v}} },
		"described":  func(v any) any { return Described{uint64(1), v} },
		"descriptor": func(v any) any { return Described{v, nil} },
		"array": func(v any) any {
			if _, ok := v.(Array); ok {
				return Array{Code: 0xe0, Elems: []any{v}}
			}
			return Array{Code: 0x50, Elems: []any{v}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ok := nested(MaxDepth, wrap)
			b, err := AppendValue(nil, ok)
			require.NoError(t, err)
			v, rest, err := DecodeValue(b)
			require.NoError(t, err)
			assert.Empty(t, rest)
			assert.Equal(t, ok, v)

			out, err := AppendValue([]byte("x"), nested(MaxDepth+1, wrap))
			require.Error(t, err)
			assert.Equal(t, []byte("x"), out)
		})
	}
}

func TestSkipValue_refusesDeepNesting(t *testing.T) {
	deep := []byte{0x40}
	for range 10_000 {
		head := []byte{fmtList32, 0, 0, 0, 0, 0, 0, 0, 1}
		size := len(deep) + 4
		head[1], head[2], head[3], head[4] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
		deep = append(head, deep...)
	}
	_, err := SkipValue(deep)
	malformedInput(t, err)
	require.ErrorContains(t, err, "nested deeper than 32")

	for _, unit := range []string{"00", "00 00", "00 53 01"} {
		_, err = SkipValue([]byte(strings.Repeat(string(octets(t, unit)), 10_000) + "\x40\x40"))
		malformedInput(t, err, unit)
		require.ErrorContains(t, err, "nested deeper than 32", unit)
	}
}

// anyValue makes a random value whose containers are at most depth deep.
func anyValue(r *rand.Rand, depth int) any {
	n := r.IntN(28)
	if depth == 0 {
		n = r.IntN(22)
	}
	octets := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	size := func() int { return []int{0, 1, 7, 255, 256, 300}[r.IntN(6)] }
	u := r.Uint64() >> (r.UintN(8) * 8)
	switch n {
	case 0:
		return nil
	case 1:
		return u%2 == 0
	case 2:
		return uint8(u)
	case 3:
		return uint16(u)
	case 4, 5:
		return uint32(u)
	case 6, 7:
		return u
	case 8:
		return int8(u)
	case 9:
		return int16(u)
	case 10:
		return int32(u)
	case 11:
		return int64(u)
	case 12:
		return float32(r.NormFloat64())
	case 13:
		return r.NormFloat64()
	case 14:
		return Char(u % 0x110000)
	case 15:
		return time.UnixMilli(int64(u)).UTC()
	case 16:
		return UUID(octets(16))
	case 17:
		return octets(size())
	case 18:
		return strings.Repeat("x", size())
	case 19:
		return Symbol(strings.Repeat("y", size()))
	case 20:
		return Decimal64(octets(8))
	case 21:
		return Decimal128(octets(16))
	case 22, 23:
		l := make(List, r.IntN(4))
		for i := range l {
			l[i] = anyValue(r, depth-1)
		}
		return l
	case 24, 25:
		m := make(Map, r.IntN(4))
		for i := range m {
			m[i] = Entry{anyValue(r, depth-1), anyValue(r, depth-1)}
		}
		return m
	case 26:
		return Described{anyValue(r, depth-1), anyValue(r, depth-1)}
	}
	return anyArray(r)
}

func anyArray(r *rand.Rand) Array {
	a := Array{Elems: make([]any, 1+r.IntN(300))}
	long := r.IntN(2) * 300
	elems := map[byte]func() any{
		fmtBool:     func() any { return r.IntN(2) == 0 },
		fmtUint:     func() any { return r.Uint32() >> 20 },
		fmtSmallInt: func() any { return int32(int8(r.Uint32())) },
		fmtLong:     func() any { return int64(r.IntN(1000)) - 500 },
		fmtStr32:    func() any { return strings.Repeat("s", r.IntN(10)+long) },
		fmtSym32:    func() any { return Symbol(strings.Repeat("s", r.IntN(10)+long)) },
		fmtBin32:    func() any { return []byte(strings.Repeat("s", r.IntN(10)+long)) },
		fmtList32:   func() any { return List{r.Uint32(), strings.Repeat("s", long)} },
		fmtMap32:    func() any { return Map{{"k", strings.Repeat("s", long)}} },
		fmtUUID:     func() any { return UUID{byte(r.Uint32())} },
	}
	for code, f := range elems {
		a.Code = code
		for i := range a.Elems {
			a.Elems[i] = f()
		}
		break
	}
	if r.IntN(3) == 0 {
		a.Descriptor = Symbol("d")
	}
	return a
}

func TestValue_roundTripsRandomValues(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		want := anyValue(r, 4)
		b, err := AppendValue(nil, want)
		require.NoError(t, err, "seed %d", seed)
		rest, err := SkipValue(b)
		require.NoError(t, err, "seed %d", seed)
		require.Empty(t, rest)
		got, rest, err := DecodeValue(b)
		require.NoError(t, err, "seed %d", seed)
		require.Empty(t, rest)
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestAppendValue_widensArrayElementsThatDoNotFit(t *testing.T) {
	long := strings.Repeat("x", 256)
	for narrow, elem := range map[byte]any{
		fmtBin8: []byte(long), fmtStr8: long, fmtSym8: Symbol(long),
		fmtList8: List{long}, fmtMap8: Map{{long, nil}},
		fmtArray8: Array{Code: fmtStr32, Elems: []any{long}},
	} {
		b, err := AppendValue(nil, Array{Code: narrow, Elems: []any{elem}})
		require.NoError(t, err)
		v, _, err := DecodeValue(b)
		require.NoError(t, err)
		assert.Equal(t, Array{Code: narrow | wideBit, Elems: []any{elem}}, v)
	}
}

func TestAppendValue_takesGoTypesBeyondTheDecodedOnes(t *testing.T) {
	for _, c := range []struct{ in, out any }{
		{int(-1), int64(-1)},
		{uint(300), uint64(300)},
		{[16]byte{1}, UUID{1}},
		{[]byte(nil), []byte{}},
		{[]any{1, "a"}, List{int64(1), "a"}},
		{[]Symbol{"a", "b"}, Array{Code: fmtSym8, Elems: []any{Symbol("a"), Symbol("b")}}},
		{[]string{"a"}, Array{Code: fmtStr8, Elems: []any{"a"}}},
		{map[string]any{"b": true, "a": nil}, Map{{"a", nil}, {"b", true}}},
		{map[Symbol]any{"b": true, "a": nil}, Map{{Symbol("a"), nil}, {Symbol("b"), true}}},
		{Array{}, Array{Code: fmtNull}},
	} {
		b, err := AppendValue(nil, c.in)
		require.NoError(t, err)
		v, _, err := DecodeValue(b)
		require.NoError(t, err)
		assert.Equal(t, c.out, v, "%T", c.in)
	}
}

func TestAppendValue_refusesWhatHasNoEncoding(t *testing.T) {
	cycle := make(List, 1)
	cycle[0] = cycle
	for _, v := range []any{
		struct{}{}, complex(1, 1), map[int]any{}, new(int), []int{1}, make(chan int),
		List{1, struct{}{}}, Map{{"k", struct{}{}}}, Map{{struct{}{}, 1}}, Described{1, struct{}{}}, Described{struct{}{}, 1},
		cycle,
		Array{Code: 0x39, Elems: []any{1}},
		Array{Code: fmtUint, Elems: []any{"a"}},
		Array{Code: fmtSmallUint, Elems: []any{uint32(256)}},
		Array{Code: fmtUint0, Elems: []any{uint32(1)}},
		Array{Code: fmtTrue, Elems: []any{false}},
		Array{Code: fmtFalse, Elems: []any{true}},
		Array{Code: fmtNull, Elems: []any{true}},
		Array{Code: fmtStr8, Elems: []any{Symbol("a")}},
		Array{Code: fmtSym8, Elems: []any{[]byte("a")}},
		Array{Code: fmtBin8, Elems: []any{"a"}},
		Array{Code: fmtBin8, Elems: []any{uint8(1)}},
		Array{Code: fmtList8, Elems: []any{Map{}}},
		Array{Code: fmtMap8, Elems: []any{List{}}},
		Array{Code: fmtArray8, Elems: []any{List{}}},
		Array{Code: fmtList8, Elems: []any{uint8(1)}},
		Array{Code: fmtList0, Elems: []any{List{nil}}},
		Array{Code: fmtSym8, Descriptor: struct{}{}, Elems: []any{Symbol("a")}},
		Array{Code: fmtNull, Elems: make([]any, maxEmptyElems+1)},
	} {
		out, err := AppendValue([]byte("x"), v)
		require.Error(t, err, "%T", v)
		assert.Equal(t, []byte("x"), out)
	}
}

func TestMap_get(t *testing.T) {
	m := Map{
		{List{1}, "list"}, {[]byte("k"), "binary"}, {Symbol("s"), "symbol"}, {"s", "second"},
		{uint64(1), "ulong"}, {int64(1), "long"}, {nil, "null"}, {Described{1, List{}}, "described"},
	}
	for _, c := range []struct{ key, want any }{
		{"s", "symbol"}, {Symbol("s"), "symbol"}, {[]byte("k"), "binary"}, {"k", nil}, {uint64(1), "ulong"},
		{int64(1), "long"}, {int32(1), nil}, {nil, "null"}, {List{1}, nil}, {Described{1, List{}}, nil}, {[]byte("x"), nil},
	} {
		assert.Equal(t, c.want, m.Get(c.key), "%T %v", c.key, c.key)
	}
	assert.Nil(t, Map(nil).Get("s"))
}

func TestDecodeMap(t *testing.T) {
	for in, want := range map[string]Map{
		"":                        nil,
		"40":                      nil,
		"c1 01 00":                {},
		"c1 06 02 a1 01 61 55 01": {{"a", int64(1)}},
	} {
		m, err := DecodeMap(octets(t, in))
		require.NoError(t, err)
		assert.Equal(t, want, m, in)
	}
	for _, in := range []string{"45", "c1 01 00 00", "c1 01", "a1 00", "00 40 c1 01 00"} {
		_, err := DecodeMap(octets(t, in))
		malformedInput(t, err, in)
	}
}
