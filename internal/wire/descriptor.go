package wire

import "encoding/binary"

// Descriptor codes. The domain, the upper 32 bits, is 0 for all of them.
//
// Spec: 2.7, 2.8, 3.2, 3.4, 3.5, 4.5, 5.3.3.
const (
	CodeOpen        uint64 = 0x10
	CodeBegin       uint64 = 0x11
	CodeAttach      uint64 = 0x12
	CodeFlow        uint64 = 0x13
	CodeTransfer    uint64 = 0x14
	CodeDisposition uint64 = 0x15
	CodeDetach      uint64 = 0x16
	CodeEnd         uint64 = 0x17
	CodeClose       uint64 = 0x18
	CodeError       uint64 = 0x1d

	CodeReceived uint64 = 0x23
	CodeAccepted uint64 = 0x24
	CodeRejected uint64 = 0x25
	CodeReleased uint64 = 0x26
	CodeModified uint64 = 0x27

	CodeSource                    uint64 = 0x28
	CodeTarget                    uint64 = 0x29
	CodeDeleteOnClose             uint64 = 0x2b
	CodeDeleteOnNoLinks           uint64 = 0x2c
	CodeDeleteOnNoMessages        uint64 = 0x2d
	CodeDeleteOnNoLinksOrMessages uint64 = 0x2e
	CodeCoordinator               uint64 = 0x30
	CodeDeclare                   uint64 = 0x31
	CodeDischarge                 uint64 = 0x32
	CodeDeclared                  uint64 = 0x33
	CodeTransactionalState        uint64 = 0x34

	CodeSASLMechanisms uint64 = 0x40
	CodeSASLInit       uint64 = 0x41
	CodeSASLChallenge  uint64 = 0x42
	CodeSASLResponse   uint64 = 0x43
	CodeSASLOutcome    uint64 = 0x44

	CodeHeader                uint64 = 0x70
	CodeDeliveryAnnotations   uint64 = 0x71
	CodeMessageAnnotations    uint64 = 0x72
	CodeProperties            uint64 = 0x73
	CodeApplicationProperties uint64 = 0x74
	CodeData                  uint64 = 0x75
	CodeAMQPSequence          uint64 = 0x76
	CodeAMQPValue             uint64 = 0x77
	CodeFooter                uint64 = 0x78
)

// codeUnknown stands for a symbolic descriptor the standard does not define. As a
// number it is in a domain nobody owns.
const codeUnknown = ^uint64(0)

// PeekDescriptor reads the descriptor of a performative, in any of its legal
// forms: a ulong of any width or the symbolic name. fields starts at the
// performative's list. It does not look into the list, and a code need not be one
// of the standard's.
//
// Spec: 1.3, 2.3.2.
func PeekDescriptor(body []byte) (code uint64, fields []byte, err error) {
	if len(body) >= 3 && body[0] == fmtDescribed && body[1] == fmtSmallUlong {
		return uint64(body[2]), body[3:], nil
	}
	code, n, err := descriptor(body)
	if err != nil {
		return 0, nil, err
	}
	if code == codeUnknown {
		return 0, nil, malformed("unknown descriptor")
	}
	return code, body[n:], nil
}

// descriptor reads the start of a described value. n is the offset of the value.
func descriptor(b []byte) (code uint64, n int, err error) {
	if len(b) > 0 && b[0] != fmtDescribed {
		return 0, 0, malformed("format code 0x%02x where a described value is due", b[0])
	}
	if len(b) < 2 {
		return 0, 0, errShort()
	}
	switch c := b[1]; {
	case c == fmtSmallUlong && len(b) >= 3:
		return uint64(b[2]), 3, nil
	case c == fmtUlong0:
		return 0, 2, nil
	case c == fmtUlong && len(b) >= 10:
		return binary.BigEndian.Uint64(b[2:]), 10, nil
	case isSymbol(c):
		raw, n, err := variable(c, b[2:])
		if err != nil {
			return 0, 0, err
		}
		return codeOf(raw), 2 + n, nil
	case c != fmtSmallUlong && c != fmtUlong:
		return 0, 0, malformed("descriptor of format code 0x%02x", c)
	}
	return 0, 0, errShort()
}

// variable returns the octets of a variable-width body, and the body's length.
func variable(c byte, b []byte) (raw []byte, n int, err error) {
	if c&wideBit == 0 {
		if len(b) == 0 || len(b)-1 < int(b[0]) {
			return nil, 0, errShort()
		}
		n = 1 + int(b[0])
		return b[1:n], n, nil
	}
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, 0, errShort()
	}
	n = 4 + int(binary.BigEndian.Uint32(b))
	return b[4:n], n, nil
}

// codeOf translates a symbolic descriptor.
func codeOf(name []byte) uint64 {
	switch string(name) {
	case "amqp:open:list":
		return CodeOpen
	case "amqp:begin:list":
		return CodeBegin
	case "amqp:attach:list":
		return CodeAttach
	case "amqp:flow:list":
		return CodeFlow
	case "amqp:transfer:list":
		return CodeTransfer
	case "amqp:disposition:list":
		return CodeDisposition
	case "amqp:detach:list":
		return CodeDetach
	case "amqp:end:list":
		return CodeEnd
	case "amqp:close:list":
		return CodeClose
	case "amqp:error:list":
		return CodeError
	case "amqp:sasl-mechanisms:list":
		return CodeSASLMechanisms
	case "amqp:sasl-init:list":
		return CodeSASLInit
	case "amqp:sasl-challenge:list":
		return CodeSASLChallenge
	case "amqp:sasl-response:list":
		return CodeSASLResponse
	case "amqp:sasl-outcome:list":
		return CodeSASLOutcome
	}
	if code := terminusCodeOf(name); code != codeUnknown {
		return code
	}
	return sectionCodeOf(name)
}

func terminusCodeOf(name []byte) uint64 {
	switch string(name) {
	case "amqp:received:list":
		return CodeReceived
	case "amqp:accepted:list":
		return CodeAccepted
	case "amqp:rejected:list":
		return CodeRejected
	case "amqp:released:list":
		return CodeReleased
	case "amqp:modified:list":
		return CodeModified
	case "amqp:source:list":
		return CodeSource
	case "amqp:target:list":
		return CodeTarget
	case "amqp:delete-on-close:list":
		return CodeDeleteOnClose
	case "amqp:delete-on-no-links:list":
		return CodeDeleteOnNoLinks
	case "amqp:delete-on-no-messages:list":
		return CodeDeleteOnNoMessages
	case "amqp:delete-on-no-links-or-messages:list":
		return CodeDeleteOnNoLinksOrMessages
	case "amqp:coordinator:list":
		return CodeCoordinator
	case "amqp:declare:list":
		return CodeDeclare
	case "amqp:discharge:list":
		return CodeDischarge
	case "amqp:declared:list":
		return CodeDeclared
	case "amqp:transactional-state:list":
		return CodeTransactionalState
	}
	return codeUnknown
}

func sectionCodeOf(name []byte) uint64 {
	switch string(name) {
	case "amqp:header:list":
		return CodeHeader
	case "amqp:delivery-annotations:map":
		return CodeDeliveryAnnotations
	case "amqp:message-annotations:map":
		return CodeMessageAnnotations
	case "amqp:properties:list":
		return CodeProperties
	case "amqp:application-properties:map":
		return CodeApplicationProperties
	case "amqp:data:binary":
		return CodeData
	case "amqp:amqp-sequence:list":
		return CodeAMQPSequence
	case "amqp:amqp-value:*":
		return CodeAMQPValue
	case "amqp:footer:map":
		return CodeFooter
	}
	return codeUnknown
}
