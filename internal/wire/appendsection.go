package wire

// AppendSection appends a whole map section: code is CodeDeliveryAnnotations,
// CodeMessageAnnotations, CodeApplicationProperties or CodeFooter. It returns an
// error, and dst unchanged, if m holds what [AppendValue] refuses.
//
// Spec: 3.2.2, 3.2.3, 3.2.5, 3.2.9.
func AppendSection(dst []byte, code uint64, m Map) ([]byte, error) {
	out, err := appendMap(append(dst, fmtDescribed, fmtSmallUlong, byte(code)), m, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendData appends a data section.
//
// Spec: 3.2.6.
func AppendData(dst, data []byte) []byte {
	return append(AppendDataHeader(dst, len(data)), data...)
}

// AppendDataHeader appends what stands before the n octets of a data section.
//
// Spec: 3.2.6.
func AppendDataHeader(dst []byte, n int) []byte {
	return appendVariable(append(dst, fmtDescribed, fmtSmallUlong, byte(CodeData)), fmtBin8, n)
}

// AppendAMQPValue appends an amqp-value section. It returns an error, and dst
// unchanged, if [AppendValue] refuses v.
//
// Spec: 3.2.8.
func AppendAMQPValue(dst []byte, v any) ([]byte, error) {
	out, err := appendValue(append(dst, fmtDescribed, fmtSmallUlong, byte(CodeAMQPValue)), v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendSequence appends an amqp-sequence section. It returns an error, and dst
// unchanged, if l holds what [AppendValue] refuses.
//
// Spec: 3.2.7.
func AppendSequence(dst []byte, l List) ([]byte, error) {
	out, err := appendList(append(dst, fmtDescribed, fmtSmallUlong, byte(CodeAMQPSequence)), l, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// MaxDataHeader is the most that [AppendDataHeader] appends.
const MaxDataHeader = 8
