package dataplane

// maxStep is the largest distance of two serial numbers that still has a sign.
// Windows and credits are cut to it: more than this is as good as no limit.
const maxStep = 1<<31 - 1

// ahead returns how far a is in front of b, 0 if it is not in front.
//
// Spec: 2.8.10, RFC 1982.
func ahead(a, b uint32) uint32 {
	if d := int32(a - b); d > 0 {
		return uint32(d)
	}
	return 0
}
