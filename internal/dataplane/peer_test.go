package dataplane

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// peer is a scripted AMQP peer. Of itself it answers headers, open, begin, attach,
// detach, end and close, and grants nothing. It checks every frame that it reads:
// frame size, transfer-ids against its window, delivery-ids in order, deliveries
// against its credit, and that a disposition names only deliveries it has sent and
// that were not settled before. A breach is an error of the test.
type peer struct {
	t    testing.TB
	nc   net.Conn
	opt  peerOptions
	wg   sync.WaitGroup
	gone chan struct{} // closed when reading has ended

	wmu sync.Mutex // one frame at a time

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever anything was read
	log      []string      // control and flow frames, in order
	frames   []any         // the same, decoded
	sessions map[uint16]*peerSession
	closed   bool          // the client's CLOSE has come
	gate     chan struct{} // if set: reading stops until it is closed
}

// peerOptions differ from what a quiet peer does.
type peerOptions struct {
	open       wire.Open
	begin      wire.Begin        // what its BEGINs say
	sent       uint32            // initial delivery-count of its senders
	delivery   uint32            // its first delivery-id
	channel    uint16            // added to the client's channel for its own
	handle     uint32            // added to the client's handle for its own
	maxMessage uint64            // what its ATTACHes say
	mute       map[uint64]bool   // performatives that it does not answer
	refuse     map[string]string // link names it refuses, with the condition
	raw        bool              // reads and checks nothing: the test does
}

type peerSession struct {
	p             *peer
	channel, mine uint16
	nextIncoming  uint32 // the client's next transfer-id
	windowEnd     uint32
	nextDelivery  uint32 // the client's next delivery-id
	firstDelivery bool
	nextOutgoing  uint32
	nextMine      uint32 // our next delivery-id
	links         map[uint32]*peerLink
	outstanding   map[uint32]*peerLink  // our deliveries, not settled
	settled       map[uint32]wire.State // our deliveries, as settled by the client
	dispositions  int
	confirmed     []run // dispositions of role sender
	unsettledIn   map[uint32]bool
	autoAccept    bool
	ended         bool // the peer has sent its END
}

type peerLink struct {
	s            *peerSession
	name         string
	handle, mine uint32
	sender       bool // the client is the sender
	attach       wire.Attach
	count        uint32 // delivery-count
	creditEnd    uint32
	id           uint32
	more         bool
	body         []byte
	bodies       [][]byte // what the client has sent
	window       int      // if set: what may be out at most, checked on every flow
	detached     bool     // the peer has sent its DETACH
}

func newPeer(t testing.TB, nc net.Conn, o peerOptions) *peer {
	if o.open.ContainerID == "" {
		o.open.ContainerID = "peer"
	}
	if o.open.MaxFrameSize == 0 {
		o.open.MaxFrameSize = 1 << 16
	}
	if o.open.ChannelMax == 0 {
		o.open.ChannelMax = 1000
	}
	if o.begin.IncomingWindow == 0 {
		o.begin.IncomingWindow = 1 << 20
	}
	if o.begin.HandleMax == 0 {
		o.begin.HandleMax = 1 << 20
	}
	p := &peer{
		t: t, nc: nc, opt: o, gone: make(chan struct{}), changed: make(chan struct{}),
		sessions: make(map[uint16]*peerSession),
	}
	p.wg.Go(p.read)
	return p
}

func (p *peer) read() {
	defer close(p.gone)
	if p.opt.raw {
		return
	}
	head := make([]byte, 8)
	for header := true; ; header = false {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		if gate != nil {
			<-gate
		}
		if _, err := io.ReadFull(p.nc, head); err != nil {
			return
		}
		if header {
			p.write(head)
			continue
		}
		h, err := wire.ParseFrameHeader(head)
		if err != nil {
			p.t.Errorf("the client wrote %x: %v", head, err)
			return
		}
		body := make([]byte, h.Size-8)
		if _, err := io.ReadFull(p.nc, body); err != nil {
			return
		}
		if h.Size > p.opt.open.MaxFrameSize {
			p.t.Errorf("frame of %d octets, %d are agreed", h.Size, p.opt.open.MaxFrameSize)
		}
		if len(body) > 0 {
			p.frame(h.Channel, body)
		}
	}
}

// write writes octets as they are.
func (p *peer) write(b []byte) {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	_, _ = p.nc.Write(b)
}

type performative interface{ Append([]byte) []byte }

// send writes one frame.
func (p *peer) send(channel uint16, f performative, payload ...byte) {
	b := f.Append(wire.BeginFrame(nil, wire.TypeAMQP, channel))
	b = append(b, payload...)
	wire.EndFrame(b, 0)
	p.write(b)
}

func (p *peer) bug(format string, args ...any) {
	p.t.Errorf("peer: "+format, args...)
}

// note records a frame and wakes whoever waits for one.
func (p *peer) note(f any, format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
	p.frames = append(p.frames, f)
}

func (p *peer) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// await waits until ok, called with the lock held, is true.
func (p *peer) await(what string, ok func() bool) {
	p.t.Helper()
	for {
		p.mu.Lock()
		changed := p.changed
		good := ok()
		p.mu.Unlock()
		if good {
			return
		}
		select {
		case <-changed:
		case <-p.gone:
			p.mu.Lock()
			good = ok()
			p.mu.Unlock()
			require.True(p.t, good, "connection gone before %s", what)
			return
		case <-p.t.Context().Done():
			require.Fail(p.t, "test over before "+what)
		}
	}
}

// locked runs f with the lock held.
func (p *peer) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// seen returns the log so far.
func (p *peer) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

func (p *peer) session(channel uint16) *peerSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[channel]
}

// link returns the client's link of that name on the session.
func (s *peerSession) link(name string) *peerLink {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for _, l := range s.links {
		if l.name == name {
			return l
		}
	}
	return nil
}

// received returns a copy of what the client has sent on l.
func (l *peerLink) received() [][]byte {
	l.s.p.mu.Lock()
	defer l.s.p.mu.Unlock()
	return slices.Clone(l.bodies)
}

// stall stops reading after the next frame, until the function it returns is called.
func (p *peer) stall() (goOn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.gate = gate
	return func() {
		p.locked(func() { p.gate = nil })
		close(gate)
	}
}

// hang closes the socket.
func (p *peer) hang() { _ = p.nc.Close() }

// sameBodies reports whether two lists of payloads are equal.
func sameBodies(a, b [][]byte) bool {
	return slices.EqualFunc(a, b, bytes.Equal)
}
