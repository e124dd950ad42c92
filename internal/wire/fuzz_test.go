package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeValue(f *testing.F) {
	for _, g := range golden {
		f.Add(octets(f, g.wire))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rest, skipErr := SkipValue(in)
		v, rest2, err := DecodeValue(in)
		require.Equal(t, skipErr == nil, err == nil)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		require.Len(t, rest2, len(rest))
		once, err := AppendValue(nil, v)
		require.NoError(t, err)
		v, rest, err = DecodeValue(once)
		require.NoError(t, err)
		require.Empty(t, rest)
		twice, err := AppendValue(nil, v)
		require.NoError(t, err)
		require.Equal(t, once, twice)
	})
}

// fuzzPerformatives decodes any input as each of the performatives, and asserts
// that what is accepted encodes to something that decodes to the same.
func fuzzPerformatives(f *testing.F, kinds ...performative) {
	f.Helper()
	for _, s := range samples {
		f.Add(s.p.Append(nil))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, p := range kinds {
			if err := p.Decode(in); err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				continue
			}
			once := p.Append(nil)
			again := fresh(p)
			require.NoError(t, again.Decode(once), "%T", p)
			require.Equal(t, once, again.Append(nil), "%T", p)
		}
	})
}

func FuzzHotPerformatives(f *testing.F) {
	fuzzPerformatives(f, &Transfer{}, &Flow{}, &Disposition{})
}

func FuzzConnectionPerformatives(f *testing.F) {
	fuzzPerformatives(f, &Open{}, &Begin{}, &End{}, &Close{})
}

func FuzzLinkPerformatives(f *testing.F) {
	fuzzPerformatives(f, &Attach{}, &Detach{})
}

func FuzzSASL(f *testing.F) {
	fuzzPerformatives(f, &SASLMechanisms{}, &SASLInit{}, &SASLChallenge{}, &SASLResponse{}, &SASLOutcome{})
}

func FuzzFrameHeader(f *testing.F) {
	f.Add(octets(f, "00 00 00 08 02 00 00 00 00 53 18 45"))
	f.Add(octets(f, "'AMQP' 03 01 00 00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if h, err := ParseFrameHeader(in); err == nil {
			require.GreaterOrEqual(t, h.Size, uint32(h.DOff)*4)
			require.GreaterOrEqual(t, h.DOff, uint8(2))
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
		if id, err := ParseProtocolHeader(in); err == nil {
			h := ProtocolHeader(id)
			require.Equal(t, h[:], in[:8])
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
		if _, fields, err := PeekDescriptor(in); err == nil {
			require.Less(t, len(fields), len(in))
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
	})
}

func FuzzSections(f *testing.F) {
	f.Add(sampleMessage(f))
	f.Add(octets(f, "00 53 76 c0 05 02 55 01 55 02 00 53 76 c0 05 02 a1 01 78 41"))
	f.Add(octets(f, "00 53 77 c1 0b 04 a1 01 61 55 01 55 02 a1 01 62"))
	f.Add(octets(f, "00 80 0000000000000070 c0 02 01 41 00 80 0000000000000073 45 00 80 0000000000000075 a0 01 61"))
	f.Add(octets(f, "00 a3 10 'amqp:data:binary' a0 01 61"))
	f.Fuzz(func(t *testing.T, in []byte) {
		checkParsed(t, in)
		// The lookups take anything.
		for i := range propCount {
			LookupProperty(in, i)
		}
		LookupString(in, "a")
		RawBytes(in)
		_, _ = DecodeMap(in)
		_ = new(Properties).Decode(in)
		_ = new(Header).Decode(in)
	})
}
