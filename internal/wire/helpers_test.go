package wire

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// octets turns "00 53 10" into bytes. Text in single quotes stands for its octets.
func octets(tb testing.TB, s string) []byte {
	tb.Helper()
	var out []byte
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			out = append(out, part...)
			continue
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(part), ""))
		require.NoError(tb, err, part)
		out = append(out, b...)
	}
	return out
}

// malformedInput asserts that err is a decoding error that says something.
func malformedInput(tb testing.TB, err error, msg ...any) {
	tb.Helper()
	require.ErrorIs(tb, err, ErrMalformed, msg...)
	assert.Greater(tb, len(err.Error()), len(ErrMalformed.Error())+2, msg...)
	assert.Less(tb, len(err.Error()), 300, msg...)
}

// mutations calls f with changes of one octet of b: each bit flipped, and values
// that mean much as a format code, size or count.
func mutations(b []byte, f func([]byte)) {
	c := append([]byte(nil), b...)
	for i := range c {
		for bit := range 8 {
			c[i] = b[i] ^ 1<<bit
			f(c)
		}
		for _, x := range []byte{fmtDescribed, fmtNull, fmtList0, fmtStr8, fmtList32, fmtMap8, fmtArray8, 0xff, b[i] + 1, b[i] - 1} {
			c[i] = x
			f(c)
		}
		c[i] = b[i]
	}
}

// composite turns "10 | a1 00 | 40" into the described list of code 0x10 and two fields.
func composite(tb testing.TB, s string) []byte {
	tb.Helper()
	parts := strings.Split(s, "|")
	var fields []byte
	for _, part := range parts[1:] {
		fields = append(fields, octets(tb, part)...)
	}
	require.Less(tb, len(fields), 255)
	head := octets(tb, "00 53"+parts[0]+"c0 00 00")
	head[4], head[5] = byte(len(fields)+1), byte(len(parts)-1)
	return append(head, fields...)
}
