package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(tb testing.TB, in string) (Sections, error) {
	tb.Helper()
	var s Sections
	err := s.Parse(octets(tb, in))
	return s, err
}

func mustParse(tb testing.TB, in string) Sections {
	tb.Helper()
	s, err := parse(tb, in)
	require.NoError(tb, err, in)
	return s
}

const dataA = "00 53 75 a0 01 'a'"

func TestSections_allOfThem(t *testing.T) {
	s := mustParse(t, `00 53 70 c0 0c 05 41 50 07 70 00 00 03 e8 41 52 02
		00 53 71 c1 05 02 a3 01 'd' 41 00 53 72 c1 05 02 a3 01 'm' 42
		00 53 73 c0 04 01 a1 01 'i' 00 53 74 c1 05 02 a1 01 'p' 43
		00 53 75 a0 02 'ab' 00 53 75 a0 00 00 53 75 b0 00 00 00 01 'c' 00 53 78 c1 05 02 a3 01 'f' 44`)
	assert.True(t, s.HasHeader)
	assert.Equal(t, Header{Durable: true, Priority: 7, TTL: 1000, HasTTL: true, FirstAcquirer: true, DeliveryCount: 2}, s.Header)
	for want, got := range map[string][]byte{"d": s.DeliveryAnnotations, "m": s.MessageAnnotations, "f": s.Footer} {
		m, err := DecodeMap(got)
		require.NoError(t, err)
		assert.Equal(t, Symbol(want), m[0].Key)
	}
	m, err := DecodeMap(s.ApplicationProperties)
	require.NoError(t, err)
	assert.Equal(t, Map{{"p", uint32(0)}}, m)
	var p Properties
	require.NoError(t, p.Decode(s.Properties))
	assert.Equal(t, Properties{MessageID: "i"}, p)
	assert.Equal(t, BodyData, s.Body)
	assert.Equal(t, "ab", string(s.Data))
	assert.Equal(t, 3, s.DataCount)
	assert.Equal(t, 3, s.DataSize)
	assert.Equal(t, "xabc", string(s.AppendBody([]byte("x"))))
}

func TestSections_parseOverwrites(t *testing.T) {
	s := mustParse(t, "00 53 70 c0 02 01 41 00 53 73 45 "+dataA)
	require.NoError(t, s.Parse(nil))
	assert.Equal(t, Sections{Header: Header{Priority: DefaultPriority}}, s)
}

// The four ways in which producers send nothing are told apart.
func TestSections_emptyBodies(t *testing.T) {
	s := mustParse(t, "")
	assert.Equal(t, BodyNone, s.Body)

	s = mustParse(t, "00 53 77 40")
	assert.Equal(t, BodyValue, s.Body)
	assert.Equal(t, []byte{fmtNull}, s.Value)

	for _, in := range []string{"00 53 75 40", "00 53 75 a0 00"} {
		s = mustParse(t, in)
		assert.Equal(t, BodyData, s.Body)
		assert.Equal(t, 1, s.DataCount)
		assert.NotNil(t, s.Data)
		assert.Empty(t, s.Data)
		assert.Empty(t, s.AppendBody(nil))
	}
}

func TestSections_everyDescriptorForm(t *testing.T) {
	s := mustParse(t, `00 80 00 00 00 00 00 00 00 70 c0 02 01 41
		00 80 00 00 00 00 00 00 00 73 45 00 80 00 00 00 00 00 00 00 75 a0 01 'a'`)
	assert.Equal(t, Header{Durable: true, Priority: 4}, s.Header)
	assert.Equal(t, "a", string(s.Data))

	s = mustParse(t, "00 a3 10 'amqp:header:list' 45 00 a3 1f 'amqp:application-properties:map' c1 01 00 00 b3 00 00 00 10 'amqp:data:binary' a0 01 'a'"+
		" 00 a3 10 'amqp:data:binary' a0 01 'b'")
	assert.True(t, s.HasHeader)
	assert.Equal(t, []byte{fmtMap8, 1, 0}, s.ApplicationProperties)
	assert.Equal(t, "ab", string(s.AppendBody(nil)))
}

// Payloads that broke consumers in the field, by their names there.
func TestSections_fieldReports(t *testing.T) {
	t.Run("P1 char", func(t *testing.T) {
		s := mustParse(t, "00 53 77 73 00 00 00 41")
		v, _, err := DecodeValue(s.Value)
		require.NoError(t, err)
		assert.Equal(t, Char('A'), v)
	})
	t.Run("P1 decimal64", func(t *testing.T) {
		s := mustParse(t, "00 53 77 84 00 00 00 00 00 00 00 41")
		v, _, err := DecodeValue(s.Value)
		require.NoError(t, err)
		assert.Equal(t, Decimal64{7: 0x41}, v)
	})
	t.Run("P1 array of lists", func(t *testing.T) {
		s := mustParse(t, "00 53 77 e0 06 01 c0 03 01 55 01")
		v, _, err := DecodeValue(s.Value)
		require.NoError(t, err)
		assert.Equal(t, Array{Code: fmtList8, Elems: []any{List{int64(1)}}}, v)
	})
	t.Run("P1 data with symbolic descriptor", func(t *testing.T) {
		s := mustParse(t, "00 a3 10 61 6d 71 70 3a 64 61 74 61 3a 62 69 6e 61 72 79 a0 01 61")
		assert.Equal(t, BodyData, s.Body)
		assert.Equal(t, "a", string(s.Data))
	})
	t.Run("P1 properties of 14 fields", func(t *testing.T) {
		_, err := parse(t, "00 53 73 c0 0f 0e"+strings.Repeat("40", 14)+"00 53 75 a0 00")
		malformedInput(t, err)
		require.ErrorContains(t, err, "14 properties")
		mustParse(t, "00 53 73 c0 0e 0d"+strings.Repeat("40", 13)+"00 53 75 a0 00")
	})
	t.Run("P1 application property with a long as key", func(t *testing.T) {
		_, err := parse(t, "00 53 74 c1 05 02 55 01 55 01 00 53 75 a0 00")
		malformedInput(t, err)
		assert.ErrorContains(t, err, "key of format code 0x55")
	})
	t.Run("P5 annotation keys that are no symbols", func(t *testing.T) {
		for in, want := range map[string]Map{
			"00 53 72 c1 05 02 53 01 a1 00":       {{uint64(1), ""}},
			"00 53 72 c1 05 02 55 01 a1 00":       {{int64(1), ""}},
			"00 53 72 c1 07 02 a1 01 61 a1 01 62": {{"a", "b"}},
			"00 53 72 c1 07 02 a3 01 61 a1 01 62": {{Symbol("a"), "b"}},
			"00 53 72 c1 04 02 44 a1 00":          {{uint64(0), ""}},
		} {
			s := mustParse(t, in+" 00 53 75 a0 00")
			m, err := DecodeMap(s.MessageAnnotations)
			require.NoError(t, err)
			assert.Equal(t, want, m)
			again, err := AppendSection(nil, CodeMessageAnnotations, m)
			require.NoError(t, err)
			assert.Equal(t, octets(t, in), again)
		}
		_, err := parse(t, "00 53 72 c1 05 02 52 01 a1 00 00 53 75 a0 00")
		malformedInput(t, err, "a uint is no annotation key")
	})
	t.Run("P6 map bodies", func(t *testing.T) {
		for in, want := range map[string]Map{
			"00 53 77 c1 06 02 a1 01 61 55 01":                {{"a", int64(1)}},
			"00 53 77 c1 0b 04 a1 01 61 55 01 55 02 a1 01 62": {{"a", int64(1)}, {int64(2), "b"}},
			"00 53 77 c1 01 00":                               {},
		} {
			s := mustParse(t, in)
			v, _, err := DecodeValue(s.Value)
			require.NoError(t, err)
			assert.Equal(t, want, v)
		}
	})
	t.Run("P7 eight octet descriptors", func(t *testing.T) {
		s := mustParse(t, "00 80 0000000000000070 c0 02 01 41 00 80 0000000000000073 45 00 80 0000000000000075 a0 01 61")
		assert.Equal(t, Header{Durable: true, Priority: 4}, s.Header)
		assert.Equal(t, "a", string(s.AppendBody(nil)))
	})
	t.Run("P10 mixed bodies", func(t *testing.T) {
		_, err := parse(t, "00 53 75 a0 01 61 00 53 77 a1 01 62")
		malformedInput(t, err)
		assert.ErrorContains(t, err, "section 0x77 behind section 0x75")
	})
	t.Run("P10 described string", func(t *testing.T) {
		s := mustParse(t, "00 53 77 00 a3 03 66 6f 6f a1 01 61")
		v, _, err := DecodeValue(s.Value)
		require.NoError(t, err)
		assert.Equal(t, Described{Symbol("foo"), "a"}, v)
	})
	t.Run("P10 two sequences", func(t *testing.T) {
		s := mustParse(t, "00 53 76 c0 05 02 55 01 55 02 00 53 76 c0 05 02 a1 01 78 41")
		assert.Equal(t, BodySequence, s.Body)
		assert.Equal(t, 2, s.SequenceCount)
		l, err := s.Sequences()
		require.NoError(t, err)
		assert.Equal(t, []List{{int64(1), int64(2)}, {"x", true}}, l)
		assert.Empty(t, s.AppendBody(nil))

		// As reported the first list is a size of 4 for 5 octets, which some decoders never look at.
		_, err = parse(t, "00 53 76 c0 04 02 55 01 55 02 00 53 76 c0 05 02 a1 01 78 41")
		malformedInput(t, err)
	})
}

// Spec: 3.2, the order of the sections and how often each may stand.
func TestSections_order(t *testing.T) {
	sections := []string{
		"00 53 70 45", "00 53 71 c1 01 00", "00 53 72 c1 01 00", "00 53 73 45", "00 53 74 c1 01 00",
		"00 53 75 a0 01 'a'", "00 53 76 45", "00 53 77 41", "00 53 78 c1 01 00",
	}
	isBody := func(i int) bool { return i >= 5 && i <= 7 }
	for i, first := range sections {
		mustParse(t, first)
		for j, second := range sections {
			_, err := parse(t, first+second)
			legal := j > i && !(isBody(i) && isBody(j)) || i == j && (i == 5 || i == 6)
			if legal {
				require.NoError(t, err, "%s then %s", first, second)
			} else {
				malformedInput(t, err, "%s then %s", first, second)
			}
		}
	}
	// A body that goes on behind the footer, or behind another kind of body.
	for _, in := range []string{dataA + "00 53 78 c1 01 00" + dataA, dataA + "00 53 76 45" + dataA} {
		_, err := parse(t, in)
		malformedInput(t, err, in)
	}
}

func TestSections_nullSectionsCountAsEmpty(t *testing.T) {
	s := mustParse(t, "00 53 70 40 00 53 71 40 00 53 72 40 00 53 73 40 00 53 74 40 "+dataA+" 00 53 78 40")
	assert.True(t, s.HasHeader)
	assert.Equal(t, Header{Priority: DefaultPriority}, s.Header)
	for _, b := range [][]byte{s.DeliveryAnnotations, s.MessageAnnotations, s.Properties, s.ApplicationProperties, s.Footer} {
		assert.Nil(t, b)
	}
}

func TestSections_malformed(t *testing.T) {
	for in, why := range map[string]string{
		"40":                                  "section descriptor",
		"00":                                  "ends in the middle",
		"00 53":                               "ends in the middle",
		"00 53 6f 45":                         "is no message section",
		"00 53 79 45":                         "is no message section",
		"00 53 10 45":                         "is no message section",
		"00 a3 03 'foo' 45":                   "is no message section",
		"00 53 75":                            "ends in the middle",
		"00 53 75 a1 01 'a'":                  "is no binary",
		"00 53 75 45":                         "is no binary",
		"00 53 75 a0 02 'a'":                  "ends in the middle",
		"00 53 75 b0 ffffffff 'a'":            "ends in the middle",
		"00 53 75 b0 00 00":                   "ends in the middle",
		"00 53 70 c1 01 00":                   "is no list",
		"00 53 70 c0 02 01 52":                "is no boolean",
		"00 53 70 c0 04 02 40 52 01":          "is no ubyte",
		"00 53 70 c0 07 06 40 40 40 40 40 40": "1 fields too many",
		"00 53 73 c1 01 00":                   "is no list",
		"00 53 73 c0 04 02 40 52 01":          "property 1 of format code 0x52",
		"00 53 73 c0 03 01 52 01":             "property 0 of format code 0x52",
		"00 53 73 c0 03 01 55 01":             "property 0 of format code 0x55",
		"00 53 73 c0 03 02 40 53":             "property 1 of format code 0x53",
		"00 53 73 c0 03 01 53 01 00":          "ends in the middle", // a section cut short after the list
		"00 53 73 c0 04 01 53 01 40":          "behind the last property",
		"00 53 73 c0 02 02 40":                "ends in the middle",
		"00 53 74 c0 01 00":                   "is no map",
		"00 53 74 c1 03 01 a1 00":             "map of 1 items",
		"00 53 74 c1 03 04 a1 00":             "map of 4 items in 2 octets",
		"00 53 74 c1 03 02 a1 00":             "ends in the middle",
		"00 53 74 c1 05 02 a1 00 40 40":       "behind the last item",
		"00 53 74 c1 05 02 a3 00 a1 00":       "key of format code 0xa3",
		"00 53 74 c1 03 02 40 40":             "key of format code 0x40",
		"00 53 74 c1 04 02 a1 00 3f":          "unknown format code 0x3f",
		"00 53 72 c1 03 02 41 40":             "key of format code 0x41",
		"00 53 76 c1 01 00":                   "is no list",
		"00 53 76 40":                         "is no list",
		"00 53 77":                            "ends in the middle",
		"00 53 77 00":                         "ends in the middle",
		"00 53 77 c0 02 01 52":                "ends in the middle",
		"00 53 77 f0 00 00 00 05 ffffffff 40": "elements without octets",
	} {
		_, err := parse(t, in)
		malformedInput(t, err, in)
		assert.ErrorContains(t, err, why, in)
	}
}

func TestSections_deepNestingIsRefusedWhereverItStands(t *testing.T) {
	fits, err := AppendValue(nil, nested(MaxDepth-1, func(v any) any { return List{v} }))
	require.NoError(t, err)
	var s Sections
	for code, wrap := range map[string]string{"74": "a1 00", "72": "a3 00", "71": "a3 00", "78": "a3 00"} {
		entry := append(octets(t, wrap), fits...)
		good := append(octets(t, "00 53"+code+"d1 00 00 00 00 00 00 00 02"), entry...)
		good[7] = byte(len(entry) + 4)
		require.NoError(t, s.Parse(good), code)
		for _, m := range [][]byte{s.ApplicationProperties, s.MessageAnnotations, s.DeliveryAnnotations, s.Footer} {
			_, err := DecodeMap(m)
			require.NoError(t, err)
		}
		entry = append(octets(t, wrap), append(octets(t, "c0 00 01"), fits...)...)
		entry[3] = byte(len(fits) + 1)
		bad := append(octets(t, "00 53"+code+"d1 00 00 00 00 00 00 00 02"), entry...)
		bad[7] = byte(len(entry) + 4)
		err := s.Parse(bad)
		malformedInput(t, err, code)
		assert.ErrorContains(t, err, "nested deeper", code)
	}
}

// sampleMessage has every section, several data sections and nested values.
func sampleMessage(tb testing.TB) []byte {
	tb.Helper()
	b := (&Header{Durable: true, Priority: 9, TTL: 1, FirstAcquirer: true, DeliveryCount: 300}).Append(nil)
	var err error
	for _, code := range []uint64{CodeDeliveryAnnotations, CodeMessageAnnotations} {
		b, err = AppendSection(b, code, Map{{Symbol("x-opt"), List{uint32(1), Map{{"k", 1.5}}}}, {uint64(3), nil}})
		require.NoError(tb, err)
	}
	b = fullProperties.Append(b)
	b, err = AppendSection(b, CodeApplicationProperties, Map{{"a", true}, {"b", int64(-1)}, {"c", []Symbol{"x", "y"}}})
	require.NoError(tb, err)
	b = AppendData(b, []byte("first"))
	b = AppendData(b, []byte("second"))
	b, err = AppendSection(b, CodeFooter, Map{{Symbol("hash"), []byte{1}}})
	require.NoError(tb, err)
	return b
}

func TestSections_truncatedAtEveryOctet(t *testing.T) {
	whole := sampleMessage(t)
	var s Sections
	require.NoError(t, s.Parse(whole))
	ends := map[int]bool{0: true}
	for rest := whole; len(rest) > 0; {
		r, err := SkipValue(rest)
		require.NoError(t, err)
		ends[len(whole)-len(r)], rest = true, r
	}
	assert.Len(t, ends, 9)
	for n := range whole {
		err := s.Parse(whole[:n:n])
		if ends[n] {
			require.NoError(t, err, n)
		} else {
			malformedInput(t, err, n)
		}
	}
}

func TestSections_anyOctetChanged(t *testing.T) {
	mutations(sampleMessage(t), func(b []byte) { checkParsed(t, b) })
}

// checkParsed asserts that after Parse accepted payload no decoder fails.
func checkParsed(tb testing.TB, payload []byte) {
	tb.Helper()
	var s Sections
	if err := s.Parse(payload); err != nil {
		require.ErrorIs(tb, err, ErrMalformed)
		return
	}
	for _, m := range [][]byte{s.DeliveryAnnotations, s.MessageAnnotations, s.ApplicationProperties, s.Footer} {
		got, err := DecodeMap(m)
		require.NoError(tb, err)
		for _, e := range got {
			k, ok := text(e.Key)
			if !ok {
				continue
			}
			_, ok = LookupString(m, k)
			require.True(tb, ok)
		}
		_, err = AppendSection(nil, CodeFooter, got)
		require.NoError(tb, err)
	}
	var p Properties
	require.NoError(tb, p.Decode(s.Properties))
	checkLookups(tb, s.Properties, &p)
	require.Len(tb, s.AppendBody(nil), s.DataSize)
	if s.Body == BodyValue {
		v, rest, err := DecodeValue(s.Value)
		require.NoError(tb, err)
		require.Empty(tb, rest)
		_, err = AppendAMQPValue(nil, v)
		require.NoError(tb, err)
	}
	l, err := s.Sequences()
	require.NoError(tb, err)
	require.Len(tb, l, s.SequenceCount)
}

func TestAppendData(t *testing.T) {
	for n, head := range map[int]string{0: "00 53 75 a0 00", 255: "00 53 75 a0 ff", 256: "00 53 75 b0 00 00 01 00", 70000: "00 53 75 b0 00 01 11 70"} {
		data := make([]byte, n)
		assert.Equal(t, octets(t, head), AppendDataHeader(nil, n))
		assert.LessOrEqual(t, len(AppendDataHeader(nil, n)), MaxDataHeader)
		assert.Equal(t, append(octets(t, head), data...), AppendData(nil, data))
	}
}

func TestAppendSection_leavesDstAsItWas(t *testing.T) {
	bad := Map{{"k", struct{}{}}}
	for name, f := range map[string]func([]byte) ([]byte, error){
		"map":      func(b []byte) ([]byte, error) { return AppendSection(b, CodeFooter, bad) },
		"value":    func(b []byte) ([]byte, error) { return AppendAMQPValue(b, bad) },
		"sequence": func(b []byte) ([]byte, error) { return AppendSequence(b, List{bad}) },
	} {
		out, err := f([]byte("x"))
		require.Error(t, err, name)
		assert.Equal(t, "x", string(out))
	}
	b, err := AppendSection(nil, CodeApplicationProperties, nil)
	require.NoError(t, err)
	assert.Equal(t, octets(t, "00 53 74 c1 01 00"), b)
}
