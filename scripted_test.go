package amqpflow_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// frame is one thing that a client sent: a frame or a protocol header.
type frame struct {
	channel uint16
	code    uint64 // of the performative; 0 for a protocol header
	proto   wire.ProtoID
	perf    any // *wire.Open, *wire.Transfer, …; nil for a protocol header
	at      time.Time
}

// peer is the server half of one connection, played by a test. It answers
// like a friendly server what a test has not taken over with on, and records
// every frame of the client. It never checks anything: that is the test's.
type peer struct {
	t      testing.TB
	nc     net.Conn
	client net.Conn // the other half, for dial
	wg     sync.WaitGroup
	gone   chan struct{} // closed when the client's half is closed

	mu         sync.Mutex
	taken      map[uint64]func(frame) bool // true: handled, no answer of ours
	frames     []frame
	news       chan struct{} // closed and replaced at each frame
	cursor     int           // of await
	out        []byte
	closing    bool          // close the socket once out is written
	wake       chan struct{} // capacity 1; tells the writer
	links      []*peerLink
	sessions   map[uint16]*peerSession
	ended      map[string]bool // what we detached, ended or closed first: its answer gets none
	open       wire.Open       // what we answer with
	mechanisms []wire.Symbol   // that we offer besides PLAIN and ANONYMOUS
	empties    int             // empty frames that came
	credit     uint32          // granted to each sending link
}

// peerLink is a link as the client attached it.
type peerLink struct {
	channel uint16
	attach  wire.Attach
	address string
	limit   uint32 // of a client that receives: the highest delivery count with credit
	count   uint32
	drained bool // its last flow asked for a drain
}

type peerSession struct {
	nextID   uint32 // transfer-id and delivery-id in one: every delivery is one frame
	incoming uint32 // transfers of the client
}

// headerCode stands for protocol headers in on and await.
const headerCode uint64 = 0

// newPeer returns a peer on a pipe; dial hands its other half to a client.
func newPeer(t testing.TB) *peer {
	client, server := net.Pipe()
	p := newPeerOn(t, server)
	p.client = client
	return p
}

func newPeerOn(t testing.TB, nc net.Conn) *peer {
	p := &peer{
		t: t, nc: nc, gone: make(chan struct{}), taken: map[uint64]func(frame) bool{},
		ended: map[string]bool{}, news: make(chan struct{}), wake: make(chan struct{}, 1), sessions: map[uint16]*peerSession{},
		open: wire.Open{
			ContainerID: "scripted", MaxFrameSize: 65536, ChannelMax: 100,
			// A product that is known to refuse an attach without ending its
			// session, so that addresses are not probed first.
			Properties: wire.Map{{Key: wire.Symbol("product"), Value: "apache-activemq-artemis"}},
		},
		credit: 100,
	}
	p.wg.Go(p.read)
	p.wg.Go(p.write)
	t.Cleanup(func() {
		p.hangUp()
		p.wg.Wait()
	})
	return p
}

func (p *peer) dial(context.Context) (net.Conn, error) { return p.client, nil }

// dialTCP is dial for Options.DialContext.
func (p *peer) dialTCP(context.Context, string, string) (net.Conn, error) { return p.client, nil }

// connect connects b to the peer.
func (p *peer) connect(b *amqpflow.Broker) {
	p.t.Helper()
	require.NoError(p.t, b.ConnectInProcess(context.Background(), p.dial))
}

// on takes a performative over: when f returns true the peer gives no answer
// of its own. f is called from the reader.
func (p *peer) on(code uint64, f func(frame) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[code] = f
}

// mute keeps the peer from answering any of codes.
func (p *peer) mute(codes ...uint64) {
	for _, code := range codes {
		p.on(code, func(frame) bool { return true })
	}
}

// hangUp closes the socket without a word.
func (p *peer) hangUp() { _ = p.nc.Close() }

func (p *peer) read() {
	defer close(p.gone)
	defer func() { _ = p.nc.Close() }()
	r := bufio.NewReader(p.nc)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		if f.code == headerCode && f.perf == nil && f.proto == 0xff {
			p.mu.Lock()
			p.empties++ // it only counts as life
			p.mu.Unlock()
			continue
		}
		f.at = time.Now()
		p.mu.Lock()
		p.note(f)
		p.frames = append(p.frames, f)
		close(p.news)
		p.news = make(chan struct{})
		taken := p.taken[f.code]
		p.mu.Unlock()
		if taken == nil || !taken(f) {
			p.answer(f)
		}
	}
}

func (p *peer) write() {
	for {
		select {
		case <-p.wake:
		case <-p.gone:
			return
		}
		p.mu.Lock()
		out, closing := p.out, p.closing
		p.out = nil
		p.mu.Unlock()
		if len(out) > 0 {
			if _, err := p.nc.Write(out); err != nil {
				return
			}
		}
		if closing {
			_ = p.nc.Close()
			return
		}
	}
}

// raw queues bytes as they are.
func (p *peer) raw(b []byte) {
	p.mu.Lock()
	p.out = append(p.out, b...)
	p.mu.Unlock()
	p.signal()
}

// closeAfterWriting closes the socket once everything queued is written.
func (p *peer) closeAfterWriting() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.signal()
}

func (p *peer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// performative is what send takes.
type performative interface{ Append([]byte) []byte }

func (p *peer) send(channel uint16, perf performative) {
	typ := wire.TypeAMQP
	switch perf := perf.(type) {
	case *wire.SASLMechanisms, *wire.SASLOutcome, *wire.SASLChallenge:
		typ = wire.TypeSASL
	case *wire.Detach, *wire.End, *wire.Close:
		p.mu.Lock()
		p.ended[endKey(channel, perf)] = true
		p.mu.Unlock()
	}
	b := perf.Append(wire.BeginFrame(nil, typ, channel))
	wire.EndFrame(b, 0)
	p.raw(b)
}

func readFrame(r io.Reader) (frame, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	if string(head[:4]) == "AMQP" {
		return frame{proto: wire.ProtoID(head[4])}, nil
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:4])-8)
	if _, err := io.ReadFull(r, body); err != nil {
		return frame{}, err
	}
	body = body[int(head[4])*4-8:]
	if len(body) == 0 {
		return frame{proto: 0xff}, nil
	}
	f := frame{channel: binary.BigEndian.Uint16(head[6:])}
	var err error
	if f.code, _, err = wire.PeekDescriptor(body); err != nil {
		return frame{}, err
	}
	f.perf, err = decodePerformative(f.code, body)
	return f, err
}

func decodePerformative(code uint64, body []byte) (any, error) {
	decoders := map[uint64]interface{ Decode([]byte) error }{
		wire.CodeOpen: new(wire.Open), wire.CodeBegin: new(wire.Begin), wire.CodeAttach: new(wire.Attach),
		wire.CodeFlow: new(wire.Flow), wire.CodeTransfer: new(wire.Transfer), wire.CodeDisposition: new(wire.Disposition),
		wire.CodeDetach: new(wire.Detach), wire.CodeEnd: new(wire.End), wire.CodeClose: new(wire.Close),
		wire.CodeSASLInit: new(wire.SASLInit), wire.CodeSASLResponse: new(wire.SASLResponse),
	}
	d := decoders[code]
	if d == nil {
		return nil, fmt.Errorf("performative 0x%x", code)
	}
	return d, d.Decode(body)
}

// endKey names what a detach, an end or a close is about.
func endKey(channel uint16, perf any) string {
	switch perf := perf.(type) {
	case *wire.Detach:
		return fmt.Sprintf("link %d %d", channel, perf.Handle)
	case *wire.End:
		return fmt.Sprintf("session %d", channel)
	default:
		return "connection"
	}
}

// answers says whether a detach, an end or a close of the client is the answer
// to ours.
func (p *peer) answers(f frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := endKey(f.channel, f.perf)
	answer := p.ended[key]
	delete(p.ended, key)
	return answer
}
