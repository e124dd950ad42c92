package main

import (
	"encoding/binary"

	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	batchSize  = 256     // transfers in one write
	sinkCredit = 1 << 14 // granted to a sender at once
	sinkWindow = 1 << 30 // transfers, either way
)

// sourceSession is one session. Ids are in serial arithmetic: they wrap.
type sourceSession struct {
	channel      uint16
	nextOutgoing uint32 // transfer-id and delivery-id: every delivery is one frame
	nextIncoming uint32
	window       uint32 // transfers the peer still takes
	links        map[uint32]*sourceLink

	owed        bool // deliveries first to last await their disposition
	first, last uint32
	scratch     wire.Transfer
}

// sourceLink is a sending link, or with sink set a receiving one.
type sourceLink struct {
	handle        uint32
	sink          bool
	deliveryCount uint32
	credit        uint32
	drain         bool   // the peer waits for its credit to be used up
	batch         []byte // batchSize encoded transfers
	stride        int    // bytes of one of them
	low           bool   // a sink's credit is half used: a grant is owed
}

// Where the parts of a transfer that differ between deliveries stand in its
// frame: behind the header (8), the descriptor (3), the list's constructor,
// size and count (3) and the handle (5).
const (
	idAt  = 8 + 3 + 3 + 5 + 1 // behind uint's constructor
	tagAt = idAt + 4 + 2      // behind the id and vbin8's constructor and length
)

// load encodes batchSize transfers once. The payloads, of one length, take
// turns.
func (l *sourceLink) load(channel uint16, payloads [][]byte) {
	head := wire.BeginFrame(nil, wire.TypeAMQP, channel)
	fields := []byte{0x70, 0, 0, 0, 0} // handle
	binary.BigEndian.PutUint32(fields[1:], l.handle)
	fields = append(fields, 0x70, 0, 0, 0, 0)    // delivery-id
	fields = append(fields, 0xa0, 4, 0, 0, 0, 0) // delivery-tag
	fields = append(fields, 0x43, 0x42)          // message-format 0, settled false
	head = append(head, 0x00, 0x53, 0x14, 0xc0, byte(len(fields)+1), 5)
	head = append(head, fields...)
	l.stride = len(head) + len(payloads[0])
	for i := range batchSize {
		l.batch = append(append(l.batch, head...), payloads[i%len(payloads)]...)
		wire.EndFrame(l.batch, i*l.stride)
	}
}

// transfers is the next batch that credit and window allow, at most
// batchSize of them; empty if they allow none.
func (s *sourceSession) transfers(l *sourceLink) []byte {
	n := int(min(positive(l.credit), positive(s.window), uint32(len(l.batch)/max(l.stride, 1))))
	for i := range n {
		frame := l.batch[i*l.stride:]
		id := s.nextOutgoing + uint32(i)
		binary.BigEndian.PutUint32(frame[idAt:], id)
		binary.BigEndian.PutUint32(frame[tagAt:], id)
	}
	s.nextOutgoing += uint32(n)
	s.window -= uint32(n)
	l.deliveryCount += uint32(n)
	l.credit -= uint32(n)
	return l.batch[:n*l.stride]
}

// positive reads a serial difference below zero as zero.
func positive(v uint32) uint32 { return uint32(max(int32(v), 0)) }

// take counts a transfer and owes its disposition.
func (s *sourceSession) take(body []byte) error {
	t := &s.scratch
	if err := t.Decode(body); err != nil {
		return err
	}
	s.nextIncoming++
	if t.DeliveryID.Set && !t.Settled {
		if !s.owed {
			s.first = t.DeliveryID.Value
		}
		s.owed, s.last = true, t.DeliveryID.Value
	}
	l := s.links[t.Handle]
	if l == nil || t.More {
		return nil
	}
	l.deliveryCount++
	l.credit--
	l.low = l.credit < sinkCredit/2
	return nil
}

// appendOwed appends what the frames of one read have made due: at most one
// disposition, and a grant for each link that runs low.
func (s *sourceSession) appendOwed(dst []byte) []byte {
	if s.owed {
		s.owed = false
		dst = appendFrame(dst, wire.TypeAMQP, s.channel, &wire.Disposition{
			Role: wire.RoleReceiver, First: s.first, Last: s.last, Settled: true,
			State: wire.State{Kind: wire.StateAccepted},
		})
	}
	for _, l := range s.links {
		if l.low {
			l.low = false
			dst = appendFrame(dst, wire.TypeAMQP, s.channel, s.grant(l))
		}
	}
	return dst
}

// grant renews a sink's credit and, with it, the session's window.
func (s *sourceSession) grant(l *sourceLink) *wire.Flow {
	l.credit = sinkCredit
	return s.state(l)
}

// drained gives up what credit the window has left unused and says so.
func (s *sourceSession) drained(l *sourceLink) *wire.Flow {
	l.deliveryCount += positive(l.credit)
	l.credit = 0
	f := s.state(l)
	f.Drain, l.drain = true, false
	return f
}

// state is a flow that says where the session, and the link unless nil,
// stand.
func (s *sourceSession) state(l *sourceLink) *wire.Flow {
	f := &wire.Flow{
		NextIncomingID: wire.Some(s.nextIncoming), IncomingWindow: sinkWindow,
		NextOutgoingID: s.nextOutgoing, OutgoingWindow: sinkWindow,
	}
	if l != nil {
		f.Handle = wire.Some(l.handle)
		f.DeliveryCount, f.LinkCredit = wire.Some(l.deliveryCount), wire.Some(l.credit)
	}
	return f
}
