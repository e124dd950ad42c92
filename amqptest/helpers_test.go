package amqptest

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// newServer is a server that no client may have broken a rule of when the test
// ends.
func newServer(t *testing.T, o *Options) *Server {
	t.Helper()
	s := NewServer(o)
	Check(t, s)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// connect returns a session of a go-amqp client that closes with the test.
func connect(t *testing.T, s *Server, o *amqp.ConnOptions) *amqp.Session {
	t.Helper()
	_, ses := connectBoth(t, s, o)
	return ses
}

func connectBoth(t *testing.T, s *Server, o *amqp.ConnOptions) (*amqp.Conn, *amqp.Session) {
	t.Helper()
	nc, err := s.Dial(t.Context())
	require.NoError(t, err)
	c, err := amqp.NewConn(t.Context(), nc, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ses, err := c.NewSession(t.Context(), nil)
	require.NoError(t, err)
	return c, ses
}

func sender(t *testing.T, ses *amqp.Session, addr string, o *amqp.SenderOptions) *amqp.Sender {
	t.Helper()
	snd, err := ses.NewSender(t.Context(), addr, o)
	require.NoError(t, err)
	return snd
}

// manual is a receiver whose credit the test grants.
func manual(t *testing.T, ses *amqp.Session, addr string, credit uint32) *amqp.Receiver {
	t.Helper()
	rcv, err := ses.NewReceiver(t.Context(), addr, &amqp.ReceiverOptions{Credit: -1})
	require.NoError(t, err)
	if credit > 0 {
		require.NoError(t, rcv.IssueCredit(credit))
	}
	return rcv
}

// leave closes a connection. go-amqp does not wait for the server's CLOSE: over
// TLS, whose end it sends before it closes the socket, the server may be faster.
func leave(t *testing.T, c *amqp.Conn) {
	t.Helper()
	if err := c.Close(); err != nil {
		require.EqualError(t, err, io.EOF.Error())
	}
}

func receive(t *testing.T, rcv *amqp.Receiver) *amqp.Message {
	t.Helper()
	m, err := rcv.Receive(t.Context(), nil)
	require.NoError(t, err)
	return m
}

// text is a message whose message-id and body are both id.
func text(id string) *amqp.Message {
	m := amqp.NewMessage([]byte(id))
	m.Properties = &amqp.MessageProperties{MessageID: id}
	return m
}

// numbered are n messages "0", "1" and so on.
func numbered(n int) []*amqp.Message {
	ms := make([]*amqp.Message, n)
	for i := range ms {
		ms[i] = text(strconv.Itoa(i))
	}
	return ms
}

// bodies are those of the queue orders.
func bodies(t *testing.T, s *Server) []string {
	t.Helper()
	r, err := Bodies[string](s, "orders")
	require.NoError(t, err)
	return r
}

// raw is a client that sends what it is told to.
type raw struct {
	t       *testing.T
	nc      net.Conn
	buf     []byte
	largest uint32 // of the server's frames so far
}

func dialRaw(t *testing.T, s *Server) *raw {
	t.Helper()
	nc, err := s.Dial(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	return &raw{t: t, nc: nc}
}

// bytes sends b as it stands. What the server does not read any more is lost.
func (r *raw) bytes(b []byte) { _, _ = r.nc.Write(b) }

func (r *raw) header(id wire.ProtoID) {
	h := wire.ProtocolHeader(id)
	r.bytes(h[:])
}

func frameOf(typ byte, channel uint16, p performative, payload []byte) []byte {
	b := p.Append(wire.BeginFrame(nil, typ, channel))
	b = append(b, payload...)
	wire.EndFrame(b, 0)
	return b
}

// send sends each performative in a frame of its own on channel 0.
func (r *raw) send(ps ...performative) {
	for _, p := range ps {
		r.bytes(frameOf(wire.TypeAMQP, 0, p, nil))
	}
}

// transfer sends a transfer frame with a payload.
func (r *raw) transfer(t wire.Transfer, payload []byte) {
	r.bytes(frameOf(wire.TypeAMQP, 0, &t, payload))
}

// frame returns the body of the server's next frame, skipping headers and
// heartbeats; nil once the connection has ended.
func (r *raw) frame() []byte {
	for {
		if len(r.buf) >= 8 && string(r.buf[:4]) == "AMQP" {
			r.buf = r.buf[8:]
			continue
		}
		if len(r.buf) >= wire.FrameHeaderSize {
			h, err := wire.ParseFrameHeader(r.buf)
			require.NoError(r.t, err)
			if len(r.buf) >= int(h.Size) {
				r.largest = max(r.largest, h.Size)
				body := r.buf[8:h.Size]
				r.buf = r.buf[h.Size:]
				if len(body) == 0 {
					continue
				}
				return body
			}
		}
		chunk := make([]byte, 4096)
		n, err := r.nc.Read(chunk)
		r.buf = append(r.buf, chunk[:n]...)
		if err != nil && n == 0 {
			return nil
		}
	}
}

// await returns the body of the server's next frame of that kind.
func (r *raw) await(code uint64) []byte {
	r.t.Helper()
	for {
		body := r.frame()
		require.NotNil(r.t, body, "the connection ended before %s", performativeName(code))
		got, _, err := wire.PeekDescriptor(body)
		require.NoError(r.t, err)
		if got == code {
			return body
		}
	}
}

// next returns what kind of frame the server's next is.
func (r *raw) next() uint64 {
	r.t.Helper()
	code, _, err := wire.PeekDescriptor(r.frame())
	require.NoError(r.t, err)
	return code
}

func (r *raw) awaitFlow() wire.Flow {
	r.t.Helper()
	var f wire.Flow
	require.NoError(r.t, f.Decode(r.await(wire.CodeFlow)))
	return f
}

func (r *raw) awaitTransfer() wire.Transfer {
	r.t.Helper()
	var f wire.Transfer
	require.NoError(r.t, f.Decode(r.await(wire.CodeTransfer)))
	return f
}

func (r *raw) awaitDisposition() wire.Disposition {
	r.t.Helper()
	var d wire.Disposition
	require.NoError(r.t, d.Decode(r.await(wire.CodeDisposition)))
	return d
}

func (r *raw) awaitDetach() wire.Detach {
	r.t.Helper()
	var d wire.Detach
	require.NoError(r.t, d.Decode(r.await(wire.CodeDetach)))
	return d
}

// closed returns the error of the server's CLOSE and closes the client's end.
func (r *raw) closed() *wire.Error {
	r.t.Helper()
	var c wire.Close
	require.NoError(r.t, c.Decode(r.await(wire.CodeClose)))
	r.send(&wire.Close{})
	require.Nil(r.t, r.frame(), "a frame after close")
	return c.Error
}

// opened sends what comes before any link: header, OPEN and a BEGIN.
func (r *raw) opened() *raw {
	r.header(wire.ProtoAMQP)
	r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 65536, ChannelMax: 10},
		&wire.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10})
	return r
}

// sending attaches a sender on handle 0 and waits for credit.
func (r *raw) sending() *raw {
	r.send(attachSender(0))
	r.awaitFlow()
	return r
}

// secondly is sending in rcv-settle-mode second, with one delivery answered.
func (r *raw) secondly() *raw {
	a := attachSender(0)
	a.RcvSettleMode = rcvSecond
	r.send(a)
	r.awaitFlow()
	r.transfer(first(0), hello)
	r.awaitDisposition()
	return r
}

// receiving attaches a receiver on handle 0 and grants credit.
func (r *raw) receiving(credit uint32) *raw {
	r.send(attachReceiver(0), linkFlow(credit))
	return r
}

func attachSender(handle uint32) *wire.Attach {
	return &wire.Attach{
		Name: "out" + strconv.Itoa(int(handle)), Handle: handle, Role: wire.RoleSender, SndSettleMode: 2,
		Source: &wire.Source{}, Target: &wire.Target{Address: "orders", HasAddress: true}, InitialDeliveryCount: wire.Some(0),
	}
}

func attachReceiver(handle uint32) *wire.Attach {
	return &wire.Attach{
		Name: "in" + strconv.Itoa(int(handle)), Handle: handle, Role: wire.RoleReceiver, SndSettleMode: 2,
		Source: &wire.Source{Address: "orders", HasAddress: true}, Target: &wire.Target{},
	}
}

// linkFlow grants credit on handle 0 before anything was delivered.
func linkFlow(credit uint32) *wire.Flow {
	return &wire.Flow{
		NextIncomingID: wire.Some(0), IncomingWindow: 100, OutgoingWindow: 100,
		Handle: wire.Some(0), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(credit),
	}
}

// first is the first frame of a delivery on handle 0.
func first(id uint32) wire.Transfer {
	return wire.Transfer{DeliveryID: wire.Some(id), DeliveryTag: []byte{byte(id)}, MessageFormat: wire.Some(0)}
}

var hello = wire.AppendData(nil, []byte("hello"))
