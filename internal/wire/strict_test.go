package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck_findsWhatTheDecodersLetPass(t *testing.T) {
	many := Map{}
	for i := range 40 {
		many = append(many, Entry{Key: uint64(i + 1), Value: nil})
	}
	encoded := func(v any) []byte {
		b, err := AppendValue(nil, v)
		require.NoError(t, err)
		return b
	}
	for name, test := range map[string]struct {
		b    []byte
		want string // of the error, "" for none
	}{
		"a string":                 {encoded("é"), ""},
		"a string of bytes":        {[]byte{fmtStr8, 1, 0xff}, "is not UTF-8"},
		"a long string of bytes":   {[]byte{fmtStr32, 0, 0, 0, 1, 0xff}, "is not UTF-8"},
		"a symbol beyond ASCII":    {[]byte{fmtSym8, 2, 0xc3, 0xa9}, "is not ASCII"},
		"a binary":                 {[]byte{fmtBin8, 1, 0xff}, ""},
		"a char":                   {[]byte{fmtChar, 0, 1, 0xf6, 0}, ""},
		"a surrogate":              {[]byte{fmtChar, 0, 0, 0xd8, 0}, "is no code point"},
		"a char beyond Unicode":    {[]byte{fmtChar, 0, 0x11, 0, 0}, "is no code point"},
		"an array of surrogates":   {[]byte{fmtArray8, 6, 1, fmtChar, 0, 0, 0xd8, 0}, "is no code point"},
		"an array of bad strings":  {[]byte{fmtArray8, 4, 1, fmtStr8, 1, 0xff}, "is not UTF-8"},
		"a list with a bad string": {[]byte{fmtList8, 4, 1, fmtStr8, 1, 0xff}, "is not UTF-8"},
		"a described bad string":   {[]byte{fmtDescribed, fmtSmallUlong, 1, fmtStr8, 1, 0xff}, "is not UTF-8"},
		"a map":                    {encoded(Map{{"a", 1}, {Symbol("a"), 2}, {[]byte("a"), 3}}), ""},
		"a key twice":              {encoded(Map{{"a", 1}, {"b", 2}, {"a", 3}}), `key "a" stands twice`},
		"a key twice, long and short": {
			[]byte{fmtMap8, 12, 4, fmtStr8, 1, 'a', fmtNull, fmtStr32, 0, 0, 0, 1, 'a', fmtNull}, `key "a" stands twice`,
		},
		"a large map":                {encoded(many), ""},
		"a key twice in a large map": {encoded(append(many, Entry{Key: uint64(1)})), "stands twice"},
		"a map within a list":        {encoded(List{Map{{"a", 1}, {"a", 2}}}), `key "a" stands twice`},
		"half a string":              {[]byte{fmtStr8, 2, 'a'}, "ends in the middle"},
	} {
		t.Run(name, func(t *testing.T) {
			rest, err := Check(append(test.b, fmtNull))
			if name == "half a string" {
				rest, err = Check(test.b)
			}
			if test.want == "" {
				require.NoError(t, err)
				assert.Equal(t, []byte{fmtNull}, rest)
				return
			}
			require.ErrorIs(t, err, ErrMalformed)
			require.ErrorContains(t, err, test.want)
		})
	}
}
