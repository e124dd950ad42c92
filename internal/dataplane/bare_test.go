package dataplane

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// bare is a plane without go-amqp: the test writes and reads the control frames
// itself, and so decides when they come. It belongs into a synctest bubble.
type bare struct {
	t testing.TB
	c *Conn
	p *peer
}

func newBare(t testing.TB, o rigOptions) *bare {
	t.Helper()
	a, b := net.Pipe()
	r := &bare{t: t, c: newConn(a, o.Options), p: newPeer(t, b, o.peer)}
	r.c.orig = o.orig
	r.c.start()
	t.Cleanup(func() {
		r.c.Abort(nil)
		r.c.Wait()
		r.p.hang()
		r.p.wg.Wait()
	})
	return r
}

// open exchanges headers and OPENs.
func (r *bare) open() {
	r.t.Helper()
	h := wire.ProtocolHeader(wire.ProtoAMQP)
	_, err := r.c.Write(h[:])
	require.NoError(r.t, err)
	require.Equal(r.t, h[:], r.unit())
	r.write(0, &wire.Open{ContainerID: "c", MaxFrameSize: 1 << 16, ChannelMax: 65535})
	var o wire.Open
	r.read(o.Decode)
}

// write is go-amqp writing one frame.
func (r *bare) write(channel uint16, f performative) {
	r.t.Helper()
	require.NoError(r.t, r.tryWrite(channel, f))
}

func (r *bare) tryWrite(channel uint16, f performative) error {
	_, err := r.c.Write(encodeAMQP(channel, f.Append))
	return err
}

// unit is go-amqp reading one header or frame.
func (r *bare) unit() []byte {
	r.t.Helper()
	b := make([]byte, 1<<20)
	n, err := r.c.Read(b)
	require.NoError(r.t, err)
	return b[:n]
}

// read is go-amqp reading one frame.
func (r *bare) read(decode func([]byte) error) {
	r.t.Helper()
	require.NoError(r.t, decode(r.unit()[wire.FrameHeaderSize:]))
}

// rest returns what go-amqp can still read, which must be over.
func (r *bare) rest() (units int, err error) {
	b := make([]byte, 1<<20)
	for {
		if _, err := r.c.Read(b); err != nil {
			return units, err
		}
		units++
	}
}

func (r *bare) begin() (*Session, *peerSession) {
	r.t.Helper()
	s, err := r.c.ExpectSession()
	require.NoError(r.t, err)
	r.write(0, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: 1<<32 - 2})
	var b wire.Begin
	r.read(b.Decode)
	return s, r.p.session(0)
}

// expect has go-amqp write an ATTACH.
func (r *bare) expect(s *Session, name string, handle uint32, role wire.Role) *Link {
	r.t.Helper()
	l, err := s.Expect(role, name, LinkOptions{})
	require.NoError(r.t, err)
	a := wire.Attach{
		Name: name, Handle: handle, Role: role, SndSettleMode: wire.SndMixed,
		Source: &wire.Source{Address: "q", HasAddress: true}, Target: &wire.Target{},
	}
	if role == wire.RoleSender {
		a.InitialDeliveryCount = wire.Some(0)
	}
	r.write(s.channel, &a)
	return l
}

func (r *bare) attach(s *Session, name string, handle uint32, role wire.Role) (*Link, *peerLink) {
	r.t.Helper()
	l := r.expect(s, name, handle, role)
	var a wire.Attach
	r.read(a.Decode)
	return l, r.p.session(s.channel).link(name)
}

func isOver(c *Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}
