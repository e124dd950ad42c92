package wire

import "encoding/binary"

// FrameHeaderSize is the length of a frame header without extended header.
const FrameHeaderSize = 8

// Frame types.
//
// Spec: 2.3.1 (AMQP), 5.3.1 (SASL).
const (
	TypeAMQP byte = 0
	TypeSASL byte = 1
)

// FrameHeader is the start of every frame.
//
// Spec: 2.3.1.
type FrameHeader struct {
	Size    uint32 // octets of the whole frame, this header included
	DOff    uint8  // where the body starts, in units of four octets
	Type    uint8  // TypeAMQP or TypeSASL
	Channel uint16 // of no meaning in a SASL frame
}

// ParseFrameHeader reads the eight octets of a frame header. It returns an error
// if there are fewer, or if the size is below 8, the data offset below 2 or behind
// the frame's end, or the type neither AMQP nor SASL. How large a frame may be is
// for the caller to check.
//
// Spec: 2.3.1.
func ParseFrameHeader(b []byte) (FrameHeader, error) {
	if len(b) < FrameHeaderSize {
		return FrameHeader{}, within(errShort(), "frame header")
	}
	h := FrameHeader{
		Size:    binary.BigEndian.Uint32(b),
		DOff:    b[4],
		Type:    b[5],
		Channel: binary.BigEndian.Uint16(b[6:]),
	}
	switch {
	case h.Size < FrameHeaderSize:
		return FrameHeader{}, malformed("frame of %d octets", h.Size)
	case h.DOff < 2 || uint32(h.DOff) > h.Size/4:
		return FrameHeader{}, malformed("data offset %d in a frame of %d octets", h.DOff, h.Size)
	case h.Type > TypeSASL:
		return FrameHeader{}, malformed("frame type 0x%02x", h.Type)
	}
	return h, nil
}

// BeginFrame appends a frame header with the size left open. [EndFrame] fills it in.
func BeginFrame(dst []byte, typ byte, channel uint16) []byte {
	return append(dst, 0, 0, 0, 0, 2, typ, byte(channel>>8), byte(channel))
}

// EndFrame makes everything from start to the end of dst one frame. start is what
// len(dst) was at [BeginFrame].
func EndFrame(dst []byte, start int) {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
}

// ProtoID names a layer in a protocol header.
//
// Spec: 2.2, 5.2.1, 5.3.2.
type ProtoID byte

// The layers.
const (
	ProtoAMQP ProtoID = 0
	ProtoTLS  ProtoID = 2
	ProtoSASL ProtoID = 3
)

// ProtocolHeader returns the protocol header of version 1.0.0 for id.
//
// Spec: 2.2.
func ProtocolHeader(id ProtoID) [8]byte {
	return [8]byte{'A', 'M', 'Q', 'P', byte(id), 1, 0, 0}
}

// ParseProtocolHeader reads a protocol header from the first eight octets of b. It
// returns an error if there are fewer, or for another protocol or version.
//
// Spec: 2.2.
func ParseProtocolHeader(b []byte) (ProtoID, error) {
	if len(b) < 8 {
		return 0, within(errShort(), "protocol header")
	}
	id := ProtoID(b[4])
	if [8]byte(b[:8]) != ProtocolHeader(id) {
		return 0, malformed("%q is no AMQP 1.0 protocol header", b[:8])
	}
	switch id {
	case ProtoAMQP, ProtoTLS, ProtoSASL:
		return id, nil
	}
	return 0, malformed("protocol id %d", id)
}
