package amqptest

// maxDeliveryTag is the longest delivery-tag. Spec: 2.8.7.
const maxDeliveryTag = 32

// tag is a delivery-tag that can be the key of a map.
type tag struct {
	n uint8
	b [maxDeliveryTag]byte
}

func (t *tag) set(b []byte) { t.n = uint8(copy(t.b[:], b)) }

func (t *tag) is(b []byte) bool { return string(t.b[:t.n]) == string(b) }

// tags are those of the deliveries of a link that are unsettled.
type tags map[tag]struct{}

func (t *tags) add(v tag) {
	if *t == nil {
		*t = tags{}
	}
	(*t)[v] = struct{}{}
}

func (t tags) has(b []byte) bool {
	if len(t) == 0 {
		return false
	}
	var v tag
	v.set(b)
	_, found := t[v]
	return found
}

// forgetTags lets the tags be used again of which the client is being told
// that we settled them. Spec: 2.6.12.
func (ses *session) forgetTags() {
	for _, a := range ses.fresh {
		delete(a.link.tags, a.tag)
	}
	ses.fresh = ses.fresh[:0]
}
