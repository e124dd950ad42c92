package amqptest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
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

// await returns the next performative of type P and drops those before it.
func await[P any](r *rawClient) *P {
	r.t.Helper()
	for {
		switch p := r.next().(type) {
		case *P:
			return p
		case nil:
			require.Fail(r.t, "the connection ended", "before %T", *new(P))
		case *wire.Close:
			require.Fail(r.t, "the connection was closed", "before %T: %v", *new(P), p.Error)
		case *wire.End:
			require.Fail(r.t, "the session was ended", "before %T: %v", *new(P), p.Error)
		}
	}
}

// ending reads until the peer ends something, and says what and why.
func (r *rawClient) ending() string {
	r.t.Helper()
	for {
		switch p := r.next().(type) {
		case nil:
			return "socket closed"
		case *wire.Close:
			return said("close", p.Error)
		case *wire.End:
			return said("end", p.Error)
		case *wire.Detach:
			return said("detach", p.Error)
		}
	}
}

// reaction is what comes back after something that may end the link, the
// session or the connection: that, or "ignored" if the session still answers.
func (r *rawClient) reaction() string {
	r.t.Helper()
	fence := r.fence(0)
	for {
		switch p := r.next().(type) {
		case *wire.Attach:
			if p.Name == fence {
				return "ignored"
			}
		case nil:
			return "socket closed"
		case *wire.Close:
			return said("close", p.Error)
		case *wire.End:
			return said("end", p.Error)
		case *wire.Detach:
			return said("detach", p.Error)
		}
	}
}

// fence attaches one more link: its answer, by the name returned, comes behind
// everything that the peer had to say to what was sent before.
func (r *rawClient) fence(channel uint16) (name string) {
	a := r.attach(wire.RoleSender)
	r.sendOn(channel, a)
	return a.Name
}

func said(what string, e *wire.Error) string {
	if e == nil {
		return what
	}
	return what + " " + strings.TrimPrefix(string(e.Condition), "amqp:")
}

// sender attaches a sender to n and returns its handle once there is credit.
func (r *rawClient) sender(n node) uint32 {
	r.t.Helper()
	a := r.attach(wire.RoleSender)
	a.Target = n.target()
	r.send(a)
	r.granted = await[wire.Flow](r).LinkCredit.Value
	require.Positive(r.t, r.granted)
	return a.Handle
}

// receiver attaches a receiver to n and returns its handle.
func (r *rawClient) receiver(n node) uint32 {
	r.t.Helper()
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	r.answer(a)
	return a.Handle
}

// answer attaches a and returns the peer's attach.
func (r *rawClient) answer(a *wire.Attach) *wire.Attach {
	r.t.Helper()
	r.send(a)
	b := await[wire.Attach](r)
	r.received[a.Handle] = b.InitialDeliveryCount.Value
	return b
}

// attach is a link of the next free handle.
func (r *rawClient) attach(role wire.Role) *wire.Attach {
	h := r.links
	r.links++
	a := &wire.Attach{
		Name: unique("link"), Handle: h, Role: role, SndSettleMode: wire.SndMixed,
		Source: &wire.Source{}, Target: &wire.Target{},
	}
	if role == wire.RoleSender {
		a.InitialDeliveryCount = wire.Some(0)
	}
	return a
}

// flow is one with the session's numbers in it.
func (r *rawClient) flow() *wire.Flow {
	return &wire.Flow{
		NextIncomingID: wire.Some(r.begin.NextOutgoingID + r.incoming), IncomingWindow: 1000,
		NextOutgoingID: r.outgoing, OutgoingWindow: 1000,
	}
}

// credit is a flow that grants credit to a receiving link.
func (r *rawClient) credit(handle, credit uint32) *wire.Flow {
	f := r.flow()
	f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(handle), wire.Some(r.received[handle]), wire.Some(credit)
	return f
}

// drain takes at most credit deliveries, and returns them once the peer has
// said that there are no more, or has used up the credit.
func (r *rawClient) drain(handle, credit uint32) []*wire.Transfer {
	r.t.Helper()
	f := r.credit(handle, credit)
	f.Drain = true
	r.send(f)
	var got []*wire.Transfer
	end := f.DeliveryCount.Value + credit
	for r.received[handle] != end {
		switch p := r.next().(type) {
		case *wire.Transfer:
			got = append(got, p)
		case *wire.Flow:
			if p.Handle.Set && p.DeliveryCount.Value == end {
				r.received[handle] = end
			}
		case nil:
			require.Fail(r.t, "the connection ended before the drain was answered")
		}
	}
	return got
}

// transfer sends a message.
func (r *rawClient) transfer(handle uint32, payload []byte) {
	id := r.deliveries
	r.deliveries++
	x := wire.Transfer{
		Handle: handle, DeliveryID: wire.Some(id), DeliveryTag: fmt.Append(nil, id), MessageFormat: wire.Some(0),
	}
	const room = 100 << 10
	for ; len(payload) > room; payload = payload[room:] {
		x.More = true
		r.fragment(x, payload[:room])
		x = wire.Transfer{Handle: handle}
	}
	x.More = false
	r.fragment(x, payload)
}

// fragment sends one transfer frame.
func (r *rawClient) fragment(x wire.Transfer, payload []byte) {
	r.write(frameOf(wire.TypeAMQP, 0, &x, payload))
	r.outgoing++
}

// settle answers deliveries that came.
func (r *rawClient) settle(s wire.State, xs ...*wire.Transfer) {
	for _, x := range xs {
		r.send(&wire.Disposition{Role: wire.RoleReceiver, First: x.DeliveryID.Value, Last: x.DeliveryID.Value, Settled: true, State: s})
	}
}
