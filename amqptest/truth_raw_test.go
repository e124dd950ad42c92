package amqptest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// patience bounds every wait for a peer.
const patience = 15 * time.Second

type performative interface{ Append(dst []byte) []byte }

// rawClient writes the frames it is told to and reads in the test's own
// goroutine. It keeps the session's numbers on channel 0, so that what it
// sends is right unless the test wants it wrong.
type rawClient struct {
	t    *testing.T
	nc   net.Conn
	buf  []byte
	open wire.Open // the peer's

	begin    wire.Begin // the peer's, on channel 0
	incoming uint32     // transfers that came
	outgoing uint32     // transfers that were sent

	deliveries uint32            // that were sent
	received   map[uint32]uint32 // the delivery-count of each receiving link
	granted    uint32            // to the sending link attached last
	links      uint32
}

// dialRaw connects the socket and nothing else.
func dialRaw(t *testing.T, p *peer) *rawClient {
	t.Helper()
	u, err := url.Parse(p.url)
	require.NoError(t, err)
	var d net.Dialer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nc, err := d.DialContext(ctx, "tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	return &rawClient{t: t, nc: nc, received: map[uint32]uint32{}}
}

// openRaw returns a client after SASL and OPEN with a session on channel 0.
func openRaw(t *testing.T, p *peer) *rawClient {
	t.Helper()
	return openRawAs(t, p, unique("truth"))
}

func openRawAs(t *testing.T, p *peer, container string) *rawClient {
	t.Helper()
	r := dialRaw(t, p).authenticated(p)
	r.send(&wire.Open{ContainerID: container, MaxFrameSize: 65536, ChannelMax: 65535, IdleTimeout: 60000})
	r.open = *await[wire.Open](r)
	r.send(&wire.Begin{NextOutgoingID: 0, IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 1<<32 - 1})
	r.begin = *await[wire.Begin](r)
	return r
}

// authenticated says who the client is, in the way the peer's URL names.
func (r *rawClient) authenticated(p *peer) *rawClient {
	r.t.Helper()
	u, err := url.Parse(p.url)
	require.NoError(r.t, err)
	password, _ := u.User.Password()
	code := r.sasl("PLAIN", []byte("\x00"+u.User.Username()+"\x00"+password))
	require.Equal(r.t, "ok", code)
	r.header(wire.ProtoAMQP)
	return r
}

// sasl goes through one SASL exchange and returns how it ended.
func (r *rawClient) sasl(mechanism wire.Symbol, response []byte) string {
	r.t.Helper()
	r.header(wire.ProtoSASL)
	if r.frame() == nil {
		return "socket closed"
	}
	r.write(frameOf(wire.TypeSASL, 0, &wire.SASLInit{Mechanism: mechanism, InitialResponse: response}, nil))
	body := r.frame()
	if body == nil {
		return "socket closed"
	}
	var o wire.SASLOutcome
	require.NoError(r.t, o.Decode(body.body))
	if o.Code == wire.SASLOK {
		return "ok"
	}
	return fmt.Sprintf("code %d", o.Code)
}

// write sends b as it stands. What the peer does not read any more is lost.
func (r *rawClient) write(b []byte) {
	_ = r.nc.SetWriteDeadline(time.Now().Add(patience))
	_, _ = r.nc.Write(b)
}

func (r *rawClient) header(id wire.ProtoID) {
	h := wire.ProtocolHeader(id)
	r.write(h[:])
}

func frameOf(typ byte, channel uint16, p performative, payload []byte) []byte {
	b := wire.BeginFrame(nil, typ, channel)
	if p != nil {
		b = p.Append(b)
	}
	b = append(b, payload...)
	wire.EndFrame(b, 0)
	return b
}

// send sends each performative in a frame of its own on channel 0.
func (r *rawClient) send(ps ...performative) { r.sendOn(0, ps...) }

func (r *rawClient) sendOn(channel uint16, ps ...performative) {
	for _, p := range ps {
		r.write(frameOf(wire.TypeAMQP, channel, p, nil))
	}
}

// rawFrame is one frame that came.
type rawFrame struct {
	channel uint16
	body    []byte // empty for a heartbeat
}

// frame returns the peer's next frame, skipping protocol headers; nil once the
// connection has ended.
func (r *rawClient) frame() *rawFrame {
	r.t.Helper()
	for {
		if len(r.buf) >= 8 && string(r.buf[:4]) == "AMQP" {
			r.buf = r.buf[8:]
			continue
		}
		if len(r.buf) >= wire.FrameHeaderSize {
			h, err := wire.ParseFrameHeader(r.buf)
			require.NoError(r.t, err)
			if len(r.buf) >= int(h.Size) {
				f := &rawFrame{channel: h.Channel, body: append([]byte{}, r.buf[int(h.DOff)*4:h.Size]...)}
				r.buf = r.buf[h.Size:]
				return f
			}
		}
		if !r.read() {
			return nil
		}
	}
}

// read reads once, and says whether the connection still is there.
func (r *rawClient) read() bool {
	r.t.Helper()
	chunk := make([]byte, 64<<10)
	require.NoError(r.t, r.nc.SetReadDeadline(time.Now().Add(patience)))
	n, err := r.nc.Read(chunk)
	r.buf = append(r.buf, chunk[:n]...)
	if err == nil || n > 0 {
		return true
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		return false
	}
	require.NoError(r.t, err, "the peer said nothing")
	return false
}

// next returns the next performative on any channel, decoded; nil once the
// connection has ended.
func (r *rawClient) next() any {
	r.t.Helper()
	for {
		f := r.frame()
		if f == nil {
			return nil
		}
		if len(f.body) == 0 {
			continue // a heartbeat
		}
		code, _, err := wire.PeekDescriptor(f.body)
		require.NoError(r.t, err)
		p := blank(code)
		require.NotNil(r.t, p, "frame 0x%02x", code)
		require.NoError(r.t, p.Decode(f.body))
		if x, is := p.(*wire.Transfer); is {
			r.incoming++
			if !x.More && !x.Aborted {
				r.received[x.Handle]++
			}
		}
		return p
	}
}

type decoder interface{ Decode(body []byte) error }

func blank(code uint64) decoder {
	switch code {
	case wire.CodeOpen:
		return new(wire.Open)
	case wire.CodeBegin:
		return new(wire.Begin)
	case wire.CodeAttach:
		return new(wire.Attach)
	case wire.CodeFlow:
		return new(wire.Flow)
	case wire.CodeTransfer:
		return new(wire.Transfer)
	case wire.CodeDisposition:
		return new(wire.Disposition)
	case wire.CodeDetach:
		return new(wire.Detach)
	case wire.CodeEnd:
		return new(wire.End)
	case wire.CodeClose:
		return new(wire.Close)
	}
	return nil
}
