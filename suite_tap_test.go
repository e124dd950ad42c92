package amqpflow_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// tap records the frames that pass over a broker's socket, in both directions
// and in their order: give its dial to Options.DialContext.
type tap struct {
	wrap    func(net.Conn) net.Conn // what the broker gets instead, if set
	mu      sync.Mutex
	frames  []tapFrame
	grown   chan struct{} // closed by the next frame, if somebody waits for it
	in, out []byte        // what is not yet a whole frame
	err     error         // the first frame that could not be read
}

// tapFrame is one recorded frame.
type tapFrame struct {
	sent    bool // by us
	channel uint16
	code    uint64
	body    any // the performative, without payload
}

func (tp *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	nc = &tappedConn{Conn: nc, tap: tp}
	if tp.wrap != nil {
		nc = tp.wrap(nc)
	}
	return nc, nil
}

type tappedConn struct {
	net.Conn
	tap *tap
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tap.record(&c.tap.in, b[:n], false)
	return n, err
}

// Write records before it writes: no answer can come before its question.
func (c *tappedConn) Write(b []byte) (int, error) {
	c.tap.record(&c.tap.out, b, true)
	return c.Conn.Write(b)
}

func (tp *tap) record(pending *[]byte, b []byte, sent bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	*pending = append(*pending, b...)
	for tp.err == nil && len(*pending) >= wire.FrameHeaderSize {
		buf := *pending
		if _, err := wire.ParseProtocolHeader(buf); err == nil {
			*pending = buf[wire.FrameHeaderSize:]
			continue
		}
		header, err := wire.ParseFrameHeader(buf)
		if err != nil {
			tp.err = err
			return
		}
		if uint32(len(buf)) < header.Size {
			return
		}
		if header.Type == wire.TypeAMQP {
			tp.keep(header.Channel, buf[int(header.DOff)*4:header.Size], sent)
		}
		*pending = buf[header.Size:]
	}
}

func (tp *tap) keep(channel uint16, body []byte, sent bool) {
	if len(body) == 0 {
		return // a heartbeat
	}
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		tp.err = err
		return
	}
	f := tapFrame{sent: sent, channel: channel, code: code}
	switch code {
	case wire.CodeBegin:
		p := new(wire.Begin)
		f.body, err = p, p.Decode(body)
	case wire.CodeEnd:
		p := new(wire.End)
		f.body, err = p, p.Decode(body)
	case wire.CodeAttach:
		p := new(wire.Attach)
		f.body, err = p, p.Decode(body)
	case wire.CodeFlow:
		p := new(wire.Flow)
		f.body, err = p, p.Decode(body)
		p.Properties = nil
	case wire.CodeTransfer:
		p := new(wire.Transfer)
		f.body, err = p, p.Decode(body)
		p.Payload, p.DeliveryTag = nil, nil
	case wire.CodeDisposition:
		p := new(wire.Disposition)
		f.body, err = p, p.Decode(body)
	case wire.CodeDetach:
		p := new(wire.Detach)
		f.body, err = p, p.Decode(body)
	}
	if err != nil {
		tp.err = err
		return
	}
	tp.frames = append(tp.frames, f)
	if tp.grown != nil {
		close(tp.grown)
		tp.grown = nil
	}
}

// until waits for frames that are as seen wants them.
func (tp *tap) until(t *testing.T, seen func([]tapFrame) bool) {
	t.Helper()
	ctx := patient(t)
	for {
		tp.mu.Lock()
		if tp.grown == nil {
			tp.grown = make(chan struct{})
		}
		grown := tp.grown
		tp.mu.Unlock()
		if seen(tp.all(t)) {
			return
		}
		select {
		case <-grown:
		case <-ctx.Done():
			require.Fail(t, "frames did not come")
		}
	}
}

// all are the frames so far.
func (tp *tap) all(t *testing.T) []tapFrame {
	t.Helper()
	tp.mu.Lock()
	defer tp.mu.Unlock()
	require.NoError(t, tp.err)
	return append([]tapFrame(nil), tp.frames...)
}

// sentAttaches are the attaches that we wrote, those of probes left out.
func (tp *tap) sentAttaches(t *testing.T) []*wire.Attach {
	t.Helper()
	frames := tp.all(t)
	probes := probesIn(frames)
	var attaches []*wire.Attach
	for _, f := range frames {
		if a, ok := f.body.(*wire.Attach); ok && f.sent && !probes[f.channel] {
			attaches = append(attaches, a)
		}
	}
	return attaches
}

// probesIn are the channels of the sessions on which a sending link was only
// tried: an address that is new to a peer which may end the session over it is
// attached alone first. The sending links themselves are on the connection's
// first session.
func probesIn(frames []tapFrame) map[uint16]bool {
	probes := map[uint16]bool{}
	publisher, begun := uint16(0), false
	for _, f := range frames {
		if f.sent && f.code == wire.CodeBegin && !begun {
			publisher, begun = f.channel, true
		}
		if a, ok := f.body.(*wire.Attach); ok && f.sent && a.Role == wire.RoleSender && f.channel != publisher {
			probes[f.channel] = true
		}
	}
	return probes
}
