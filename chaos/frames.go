package main

import (
	"encoding/binary"
	"sync"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// direction is which way a frame goes.
type direction bool

const (
	out direction = true  // from the client
	in  direction = false // from the broker
)

// frame is one frame, or protocol header, on its way.
type frame struct {
	dir     direction
	header  bool // a protocol header; code is its layer
	code    uint64
	channel uint16
	body    []byte // aliases raw
	raw     []byte // aliases the buffer of the splitter
}

// splitter finds the frames in one direction of a connection.
type splitter struct {
	dir     direction
	pending []byte
}

// push takes the next bytes, and calls f for each frame that they complete
// with the index in b behind it. It stops, and returns true, where f does.
func (s *splitter) push(b []byte, f func(frame, int) bool) bool {
	before := len(s.pending)
	s.pending = append(s.pending, b...)
	at := 0
	for {
		size, fr, ok := s.next(s.pending[at:])
		if !ok {
			break
		}
		at += size
		if f(fr, at-before) {
			return true
		}
	}
	s.pending = append(s.pending[:0], s.pending[at:]...)
	return false
}

func (s *splitter) next(b []byte) (size int, fr frame, ok bool) {
	if len(b) < wire.FrameHeaderSize {
		return 0, frame{}, false
	}
	fr.dir = s.dir
	if id, err := wire.ParseProtocolHeader(b[:8]); err == nil {
		fr.header, fr.code = true, uint64(id)
		fr.raw = b[:8]
		return 8, fr, true
	}
	size = int(binary.BigEndian.Uint32(b))
	if size < wire.FrameHeaderSize || size > len(b) {
		return 0, frame{}, false
	}
	fr.raw = b[:size]
	h, err := wire.ParseFrameHeader(b)
	if err != nil {
		return size, fr, true
	}
	fr.channel, fr.body = h.Channel, b[4*int(h.DOff):size]
	if len(fr.body) > 0 { // an empty frame is a sign of life
		fr.code, _, _ = wire.PeekDescriptor(fr.body)
	}
	return size, fr, true
}

// meter counts, on one connection, the deliveries that the broker has sent
// and the client has not settled.
type meter struct {
	mu     sync.Mutex
	client map[uint16]*metered // by the client's channel
	broker map[uint16]*metered // by the broker's channel
	most   int                 // on one session at once
}

// metered is a session.
type metered struct {
	unsettled map[uint32]uint32 // handle by delivery-id
	handles   map[uint32]uint32 // the client's handle to the broker's
	names     map[string]uint32 // the client's handle by link name
}

func newMeter() *meter {
	return &meter{client: map[uint16]*metered{}, broker: map[uint16]*metered{}}
}

// see takes a frame into account.
func (m *meter) see(f frame) {
	if f.header {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case f.code == wire.CodeBegin:
		m.begin(f)
	case f.code == wire.CodeEnd && f.dir == out:
		delete(m.client, f.channel)
	case f.code == wire.CodeAttach:
		m.attach(f)
	case f.code == wire.CodeDetach && f.dir == out:
		m.detach(f)
	case f.code == wire.CodeTransfer && f.dir == in:
		m.transfer(f)
	case f.code == wire.CodeDisposition && f.dir == out:
		m.disposition(f)
	}
}

func (m *meter) begin(f frame) {
	var b wire.Begin
	if b.Decode(f.body) != nil {
		return
	}
	if f.dir == out {
		m.client[f.channel] = &metered{unsettled: map[uint32]uint32{}, handles: map[uint32]uint32{}, names: map[string]uint32{}}
		return
	}
	m.broker[f.channel] = m.client[uint16(b.RemoteChannel.Value)]
}

func (m *meter) attach(f frame) {
	var a wire.Attach
	if a.Decode(f.body) != nil {
		return
	}
	if f.dir == out {
		if s := m.client[f.channel]; s != nil {
			s.names[a.Name] = a.Handle
		}
		return
	}
	if s := m.broker[f.channel]; s != nil {
		s.handles[s.names[a.Name]] = a.Handle
	}
}

// detach forgets what a link leaves unsettled, which goes back to its queue.
func (m *meter) detach(f frame) {
	var d wire.Detach
	s := m.client[f.channel]
	if s == nil || d.Decode(f.body) != nil {
		return
	}
	broker := s.handles[d.Handle]
	for id, handle := range s.unsettled {
		if handle == broker {
			delete(s.unsettled, id)
		}
	}
}

func (m *meter) transfer(f frame) {
	var t wire.Transfer
	s := m.broker[f.channel]
	if s == nil {
		return
	}
	if t.Decode(f.body) != nil || !t.DeliveryID.Set || t.Settled {
		return
	}
	s.unsettled[t.DeliveryID.Value] = t.Handle
	m.most = max(m.most, len(s.unsettled))
}

func (m *meter) disposition(f frame) {
	var d wire.Disposition
	s := m.client[f.channel]
	if s == nil || d.Decode(f.body) != nil || d.Role != wire.RoleReceiver || !d.Settled {
		return
	}
	for id := d.First; ; id++ {
		delete(s.unsettled, id)
		if id == d.Last {
			return
		}
	}
}
