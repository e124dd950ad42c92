package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFrameHeader_goldenOctets(t *testing.T) {
	for in, want := range map[string]FrameHeader{
		"00 00 00 08 02 00 00 00": {Size: 8, DOff: 2},
		"00 00 01 00 02 00 01 02": {Size: 256, DOff: 2, Channel: 0x102},
		"00 00 00 20 08 01 00 00": {Size: 32, DOff: 8, Type: TypeSASL},
		"ffffffffff 00 00 00":     {Size: 1<<32 - 1, DOff: 255},
	} {
		h, err := ParseFrameHeader(octets(t, in))
		require.NoError(t, err, in)
		assert.Equal(t, want, h)
	}
}

func TestParseFrameHeader_malformed(t *testing.T) {
	for in, why := range map[string]string{
		"00 00 00 08 02 00 00":    "ends in the middle",
		"00 00 00 00 02 00 00 00": "frame of 0 octets",
		"00 00 00 07 02 00 00 00": "frame of 7 octets",
		"00 00 00 08 00 00 00 00": "data offset 0",
		"00 00 00 08 01 00 00 00": "data offset 1",
		"00 00 00 08 03 00 00 00": "data offset 3 in a frame of 8 octets",
		"00 00 00 08 ff 00 00 00": "data offset 255",
		"00 00 00 0b 03 00 00 00": "data offset 3",
		"00 00 00 08 02 02 00 00": "frame type 0x02",
	} {
		_, err := ParseFrameHeader(octets(t, in))
		malformedInput(t, err, in)
		assert.ErrorContains(t, err, why)
	}
}

func TestBeginFrame_makesWhatParseReads(t *testing.T) {
	dst := []byte("before")
	start := len(dst)
	dst = BeginFrame(dst, TypeSASL, 0x1234)
	dst = (&SASLOutcome{}).Append(dst)
	EndFrame(dst, start)
	assert.Equal(t, octets(t, "00 00 00 10 02 01 12 34 00 53 44 c0 03 01 50 00"), dst[start:])
	assert.Equal(t, "before", string(dst[:start]))
	h, err := ParseFrameHeader(dst[start:])
	require.NoError(t, err)
	assert.Equal(t, FrameHeader{Size: 16, DOff: 2, Type: TypeSASL, Channel: 0x1234}, h)
}

func TestProtocolHeader(t *testing.T) {
	assert.Equal(t, [8]byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}, ProtocolHeader(ProtoAMQP))
	for _, id := range []ProtoID{ProtoAMQP, ProtoTLS, ProtoSASL} {
		h := ProtocolHeader(id)
		got, err := ParseProtocolHeader(h[:])
		require.NoError(t, err)
		assert.Equal(t, id, got)
		for n := range h {
			_, err := ParseProtocolHeader(h[:n])
			malformedInput(t, err)
		}
	}
	for _, in := range []string{"'AMQP' 01 01 00 00", "'AMQP' 00 00 09 01", "'AMQP' 00 01 01 00", "'AMQP' 00 01 00 01", "'HTTP/1.1'", "'amqp' 00 01 00 00"} {
		_, err := ParseProtocolHeader(octets(t, in))
		malformedInput(t, err, in)
	}
}

func TestPeekDescriptor_everyLegalForm(t *testing.T) {
	for in, want := range map[string]uint64{
		"00 53 14 45":                           CodeTransfer,
		"00 80 00 00 00 00 00 00 00 14 45":      CodeTransfer,
		"00 a3 12 'amqp:transfer:list' 45":      CodeTransfer,
		"00 b3 00 00 00 0e 'amqp:open:list' 45": CodeOpen,
		"00 44 45":                              0,
		"00 80 00 00 00 01 00 00 00 14 45":      1<<32 | 0x14,
		"00 53 ff 45":                           0xff,
	} {
		code, fields, err := PeekDescriptor(octets(t, in))
		require.NoError(t, err, in)
		assert.Equal(t, want, code, in)
		assert.Equal(t, []byte{0x45}, fields, in)
	}
}

func TestPeekDescriptor_malformed(t *testing.T) {
	for in, why := range map[string]string{
		"":                             "ends in the middle",
		"00":                           "ends in the middle",
		"00 53":                        "ends in the middle",
		"00 80 00 00":                  "ends in the middle",
		"00 a3 03 'ab'":                "ends in the middle",
		"00 b3 ffffffff 'ab'":          "ends in the middle",
		"45 00":                        "where a described value is due",
		"00 a3 03 'abc' 45":            "unknown descriptor",
		"00 a1 0e 'amqp:open:list' 45": "descriptor of format code 0xa1",
		"00 00 53 10 45":               "descriptor of format code 0x00",
		"00 52 10 45":                  "descriptor of format code 0x52",
	} {
		_, _, err := PeekDescriptor(octets(t, in))
		malformedInput(t, err, in)
		assert.ErrorContains(t, err, why, in)
	}
}

// Every symbolic descriptor of the standard, by its code (2.7, 2.8, 3.2, 3.4,
// 3.5, 4.5, 5.3.3).
func TestPeekDescriptor_symbolicNames(t *testing.T) {
	names := map[uint64]string{
		0x10: "amqp:open:list", 0x11: "amqp:begin:list", 0x12: "amqp:attach:list", 0x13: "amqp:flow:list",
		0x14: "amqp:transfer:list", 0x15: "amqp:disposition:list", 0x16: "amqp:detach:list", 0x17: "amqp:end:list",
		0x18: "amqp:close:list", 0x1d: "amqp:error:list",
		0x23: "amqp:received:list", 0x24: "amqp:accepted:list", 0x25: "amqp:rejected:list", 0x26: "amqp:released:list",
		0x27: "amqp:modified:list", 0x28: "amqp:source:list", 0x29: "amqp:target:list",
		0x2b: "amqp:delete-on-close:list", 0x2c: "amqp:delete-on-no-links:list", 0x2d: "amqp:delete-on-no-messages:list",
		0x2e: "amqp:delete-on-no-links-or-messages:list",
		0x30: "amqp:coordinator:list", 0x31: "amqp:declare:list", 0x32: "amqp:discharge:list", 0x33: "amqp:declared:list",
		0x34: "amqp:transactional-state:list",
		0x40: "amqp:sasl-mechanisms:list", 0x41: "amqp:sasl-init:list", 0x42: "amqp:sasl-challenge:list",
		0x43: "amqp:sasl-response:list", 0x44: "amqp:sasl-outcome:list",
		0x70: "amqp:header:list", 0x71: "amqp:delivery-annotations:map", 0x72: "amqp:message-annotations:map",
		0x73: "amqp:properties:list", 0x74: "amqp:application-properties:map", 0x75: "amqp:data:binary",
		0x76: "amqp:amqp-sequence:list", 0x77: "amqp:amqp-value:*", 0x78: "amqp:footer:map",
	}
	for want, name := range names {
		code, rest, err := PeekDescriptor(append([]byte{0, 0xa3, byte(len(name))}, name+"E"...))
		require.NoError(t, err, name)
		assert.Equal(t, want, code, name)
		assert.Equal(t, []byte("E"), rest)
	}
}
