//go:build !race

package wire

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func noAllocations(t *testing.T, what string, f func()) {
	t.Helper()
	assert.Zero(t, testing.AllocsPerRun(100, f), what)
}

func TestHotPerformatives_allocateNothing(t *testing.T) {
	buf := make([]byte, 0, 1024)
	states := map[string]State{
		"none": {}, "accepted": {Kind: StateAccepted}, "released": {Kind: StateReleased}, "rejected": {Kind: StateRejected},
		"modified": {Kind: StateModified, DeliveryFailed: true, UndeliverableHere: true}, "received": {Kind: StateReceived, SectionOffset: 300},
	}
	for name, st := range states {
		tr := Transfer{Handle: 1, DeliveryID: Some(300), DeliveryTag: []byte(long), MessageFormat: Some(0), Settled: true, More: true,
			RcvSettleMode: Some(1), State: st, Batchable: true}
		body := tr.Append(nil)
		noAllocations(t, "transfer append "+name, func() { tr.Append(buf) })
		noAllocations(t, "transfer decode "+name, func() { require.NoError(t, tr.Decode(body)) })
		long := append([]byte{0, fmtSym8, 18}, append([]byte("amqp:transfer:list"), body[3:]...)...)
		noAllocations(t, "transfer symbolic "+name, func() { require.NoError(t, tr.Decode(long)) })

		d := Disposition{Role: RoleReceiver, First: 1, Last: 1 << 20, Settled: true, State: st}
		body2 := d.Append(nil)
		noAllocations(t, "disposition append "+name, func() { d.Append(buf) })
		noAllocations(t, "disposition decode "+name, func() { require.NoError(t, d.Decode(body2)) })
	}
	p := Flow{NextIncomingID: Some(1), IncomingWindow: 1 << 31, OutgoingWindow: 9, Handle: Some(1), DeliveryCount: Some(1), LinkCredit: Some(1),
		Available: Some(1), Drain: true, Echo: true, Properties: octets(t, "c1 06 02 a3 01 'a' 55 01")}
	body := p.Append(nil)
	noAllocations(t, "flow append", func() { p.Append(buf) })
	noAllocations(t, "flow decode", func() { require.NoError(t, p.Decode(body)) })
	noAllocations(t, "frame", func() {
		b := BeginFrame(buf, TypeAMQP, 1)
		EndFrame(b, 0)
		_, err := ParseFrameHeader(b)
		require.NoError(t, err)
		_, _, err = PeekDescriptor(body)
		require.NoError(t, err)
	})
}

func TestSections_parseAllocatesNothing(t *testing.T) {
	msg := sampleMessage(t)
	var s Sections
	noAllocations(t, "parse", func() { require.NoError(t, s.Parse(msg)) })
	value, err := AppendAMQPValue(nil, nested(MaxDepth, func(v any) any { return List{v, "x", uint64(300)} }))
	require.NoError(t, err)
	noAllocations(t, "parse value", func() { require.NoError(t, s.Parse(value)) })
	noAllocations(t, "skip", func() {
		_, err := SkipValue(msg)
		require.NoError(t, err)
	})

	require.NoError(t, s.Parse(msg))
	buf := make([]byte, 0, 1024)
	noAllocations(t, "body", func() { s.AppendBody(buf) })
	noAllocations(t, "lookups", func() {
		v, ok := LookupProperty(s.Properties, PropContentType)
		require.True(t, ok)
		_, ok = RawBytes(v)
		require.True(t, ok)
		_, ok = LookupString(s.ApplicationProperties, "c")
		require.True(t, ok)
	})
	noAllocations(t, "header", func() { s.Header.Append(buf) })
	noAllocations(t, "data header", func() { AppendDataHeader(buf, 1<<20) })
	props := fullProperties
	noAllocations(t, "properties append", func() { props.Append(buf) })
}

// allocated returns the octets that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// hostile are values that cost their sender little and a careless receiver much,
// each filled up to about 128 KiB.
func hostile() map[string][]byte {
	const size = 128<<10 - 64
	fill := func(unit ...byte) []byte {
		n := (size - 9) / len(unit)
		b := make([]byte, 0, size)
		b = append(b, fmtList32, byte((n*len(unit)+4)>>24), byte((n*len(unit)+4)>>16), byte((n*len(unit)+4)>>8), byte(n*len(unit)+4),
			byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		for range n {
			b = append(b, unit...)
		}
		return b
	}
	array := func(code byte, body int) []byte {
		n := size - 10
		b := append(make([]byte, 0, size), fmtArray32, byte((n+5)>>24), byte((n+5)>>16), byte((n+5)>>8), byte(n+5),
			byte(n>>24), byte(n>>16), byte(n>>8), byte(n), code)
		for range n {
			b = append(b, byte(body))
		}
		return b
	}
	// Lists that each claim as many items as they have octets, one inside the other.
	claims := make([]byte, 0, size)
	for left := size; left > 9 && len(claims) < 9*MaxDepth; left -= 9 {
		n := left - 5
		claims = append(claims, fmtList32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n),
			byte((n-4)>>24), byte((n-4)>>16), byte((n-4)>>8), byte(n-4))
	}
	claims = append(claims, make([]byte, size-len(claims))...)
	return map[string][]byte{
		"nulls":              fill(fmtNull),
		"uint0":              fill(fmtUint0),
		"list0":              fill(fmtList0),
		"empty list8":        fill(fmtList8, 1, 0),
		"empty maps":         fill(fmtMap8, 1, 0),
		"empty binaries":     fill(fmtBin8, 0),
		"empty strings":      fill(fmtStr8, 0),
		"binaries of one":    fill(fmtBin8, 1, 1),
		"strings of one":     fill(fmtStr8, 1, 'x'),
		"lists of one":       fill(fmtList8, 2, 1, fmtNull),
		"maps of one":        fill(fmtMap8, 3, 2, fmtNull, fmtNull),
		"described":          fill(fmtDescribed, fmtUlong0, fmtNull),
		"empty arrays":       fill(fmtArray8, 2, 0, fmtNull),
		"arrays of nothing":  fill(fmtArray8, 2, 255, fmtNull),
		"small longs":        fill(fmtSmallLong, 0x80),
		"array small longs":  array(fmtSmallLong, 0x80),
		"array small ints":   array(fmtSmallInt, 0x80),
		"array empty binary": array(fmtBin8, 0),
		"array empty symbol": array(fmtSym8, 0),
		"array of ubytes":    array(fmtUbyte, 1),
		"claims":             claims,
	}
}

func TestDecodeValue_memoryStaysInProportion(t *testing.T) {
	for name, b := range hostile() {
		got := allocated(func() { _, _, _ = DecodeValue(b) })
		assert.Less(t, got, uint64(21*len(b)), "%s: %d KiB from %d KiB", name, got>>10, len(b)>>10)
	}
}

// A hostile open or attach of 128 KiB costs less than 2 MiB in all.
func TestPerformatives_boundWhatTheyBuild(t *testing.T) {
	for name, b := range hostile() {
		props := append([]byte{fmtMap32, 0, 0, 0, 0, 0, 0, 0, 2, fmtNull}, b...)
		putSize(props[1:], len(props)-5)
		for what, p := range map[string]performative{"10 open": &Open{}, "12 attach": &Attach{}, "18 close": &Close{}} {
			var fields [][]byte
			switch p.(type) {
			case *Open:
				fields = [][]byte{{fmtStr8, 0}, {fmtNull}, {fmtNull}, {fmtNull}, {fmtNull}, {fmtNull}, {fmtNull}, {fmtNull}, {fmtNull}, props}
			case *Attach:
				fields = [][]byte{{fmtStr8, 0}, {fmtUint0}, {fmtTrue}, {fmtNull}, {fmtNull}, {fmtNull}, {fmtNull}, props}
			case *Close:
				e := frameList(byte(CodeError), [][]byte{{fmtSym8, 0}, {fmtNull}, props})
				fields = [][]byte{e}
			}
			body := frameList(octets(t, what[:2])[0], fields)
			got := allocated(func() { _ = p.Decode(body) })
			assert.Less(t, got, uint64(2<<20), "%s %s: %d KiB", what, name, got>>10)
		}
		// The whole of it as the list or the symbols themselves.
		got := allocated(func() { _ = new(Open).Decode(append([]byte{0, fmtSmallUlong, 0x10}, b...)) })
		assert.Less(t, got, uint64(2<<20), name)
		body := frameList(byte(CodeSASLMechanisms), [][]byte{b})
		got = allocated(func() { _ = new(SASLMechanisms).Decode(body) })
		assert.Less(t, got, uint64(2<<20), name)
	}
}

func putSize(b []byte, n int) {
	b[0], b[1], b[2], b[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
}

func frameList(code byte, fields [][]byte) []byte {
	b := []byte{0, fmtSmallUlong, code, fmtList32, 0, 0, 0, 0, 0, 0, 0, byte(len(fields))}
	for _, f := range fields {
		b = append(b, f...)
	}
	putSize(b[4:], len(b)-8)
	return b
}
