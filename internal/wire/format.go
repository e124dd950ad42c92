package wire

// MaxDepth is how deep lists, maps, arrays and described values may nest, the
// outermost one counting as the first. It holds for decoding and encoding.
const MaxDepth = 32

// Format codes.
//
// Spec: 1.6.
const (
	fmtDescribed  = 0x00
	fmtNull       = 0x40
	fmtTrue       = 0x41
	fmtFalse      = 0x42
	fmtUint0      = 0x43
	fmtUlong0     = 0x44
	fmtList0      = 0x45
	fmtUbyte      = 0x50
	fmtByte       = 0x51
	fmtSmallUint  = 0x52
	fmtSmallUlong = 0x53
	fmtSmallInt   = 0x54
	fmtSmallLong  = 0x55
	fmtBool       = 0x56
	fmtUshort     = 0x60
	fmtShort      = 0x61
	fmtUint       = 0x70
	fmtInt        = 0x71
	fmtFloat      = 0x72
	fmtChar       = 0x73
	fmtDecimal32  = 0x74
	fmtUlong      = 0x80
	fmtLong       = 0x81
	fmtDouble     = 0x82
	fmtTimestamp  = 0x83
	fmtDecimal64  = 0x84
	fmtDecimal128 = 0x94
	fmtUUID       = 0x98
	fmtBin8       = 0xa0
	fmtStr8       = 0xa1
	fmtSym8       = 0xa3
	fmtBin32      = 0xb0
	fmtStr32      = 0xb1
	fmtSym32      = 0xb3
	fmtList8      = 0xc0
	fmtMap8       = 0xc1
	fmtList32     = 0xd0
	fmtMap32      = 0xd1
	fmtArray8     = 0xe0
	fmtArray32    = 0xf0

	// wideBit is what tells the four-octet form of a variable, compound or array
	// format code from its one-octet form.
	wideBit = 0x10
)

// Shapes of the octets behind a format code. A fixed width is fixed|width.
const (
	shapeNone = iota // no format code of the standard
	shapeVar8
	shapeVar32
	shapeList
	shapeMap
	shapeArray
	fixed = 0x80
)

var shapes = [256]byte{
	fmtNull: fixed, fmtTrue: fixed, fmtFalse: fixed, fmtUint0: fixed, fmtUlong0: fixed, fmtList0: fixed,
	fmtUbyte: fixed | 1, fmtByte: fixed | 1, fmtSmallUint: fixed | 1, fmtSmallUlong: fixed | 1,
	fmtSmallInt: fixed | 1, fmtSmallLong: fixed | 1, fmtBool: fixed | 1,
	fmtUshort: fixed | 2, fmtShort: fixed | 2,
	fmtUint: fixed | 4, fmtInt: fixed | 4, fmtFloat: fixed | 4, fmtChar: fixed | 4, fmtDecimal32: fixed | 4,
	fmtUlong: fixed | 8, fmtLong: fixed | 8, fmtDouble: fixed | 8, fmtTimestamp: fixed | 8, fmtDecimal64: fixed | 8,
	fmtDecimal128: fixed | 16, fmtUUID: fixed | 16,
	fmtBin8: shapeVar8, fmtStr8: shapeVar8, fmtSym8: shapeVar8,
	fmtBin32: shapeVar32, fmtStr32: shapeVar32, fmtSym32: shapeVar32,
	fmtList8: shapeList, fmtList32: shapeList,
	fmtMap8: shapeMap, fmtMap32: shapeMap,
	fmtArray8: shapeArray, fmtArray32: shapeArray,
}

func isString(c byte) bool { return c == fmtStr8 || c == fmtStr32 }
func isSymbol(c byte) bool { return c == fmtSym8 || c == fmtSym32 }
func isBinary(c byte) bool { return c == fmtBin8 || c == fmtBin32 }
func isUlong(c byte) bool  { return c == fmtSmallUlong || c == fmtUlong || c == fmtUlong0 }
func isLong(c byte) bool   { return c == fmtSmallLong || c == fmtLong }
