package dataplane

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// script answers go-amqp's control frames with prepared octets, and hands out the
// rest of what it has when the last link is attached.
type script struct {
	open, begin, attach, then []byte
}

func (s *script) serve(nc net.Conn) {
	head := make([]byte, 8)
	for {
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		reply := head
		if h, err := wire.ParseFrameHeader(head); err == nil {
			body := make([]byte, h.Size-8)
			if _, err := io.ReadFull(nc, body); err != nil {
				return
			}
			code, _, _ := wire.PeekDescriptor(body)
			switch code {
			case wire.CodeOpen:
				reply = s.open
			case wire.CodeBegin:
				reply = s.begin
			case wire.CodeAttach:
				reply = append(s.attach, s.then...)
			default:
				continue
			}
		}
		if _, err := nc.Write(reply); err != nil {
			return
		}
	}
}

// What the re-encoder makes of any control frame it accepts, go-amqp decodes.
func FuzzReencode(f *testing.F) {
	e := &wire.Error{Condition: "amqp:not-found", Description: "d", Info: wire.Map{{Key: wire.Symbol("k"), Value: wire.Char(1)}}}
	filter := wire.Map{{Key: wire.Symbol("f"), Value: wire.Described{Descriptor: uint64(1 << 40), Value: "sel"}}}
	for _, p := range []performative{
		&wire.Open{ContainerID: "x", MaxFrameSize: 512, IdleTimeout: 1 << 31, Properties: wire.Map{{Key: wire.Symbol("k"), Value: wire.Decimal32{}}}},
		&wire.Begin{RemoteChannel: wire.Some(0), NextOutgoingID: 1<<32 - 1, HandleMax: 7},
		&wire.Attach{Name: "r", SndSettleMode: 2, Source: &wire.Source{Address: "q", HasAddress: true, Filter: filter, ExpiryPolicy: "odd"}},
		&wire.Attach{Name: "r", RcvSettleMode: 1, SndSettleMode: 1, Coordinator: new(wire.Coordinator), MaxMessageSize: 1<<64 - 1},
		&wire.Detach{Closed: false, Error: e},
		&wire.End{Error: e},
		&wire.Close{Error: e},
	} {
		f.Add(p.Append(nil))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := script{
			open:   reencodeOpen(&wire.Open{ContainerID: "p", ChannelMax: 9}),
			begin:  reencodeBegin(0, &wire.Begin{RemoteChannel: wire.Some(0)}),
			attach: reencodeAttach(0, &wire.Attach{Name: "r", SndSettleMode: wire.SndMixed, Source: new(wire.Source)}),
		}
		want, ok := s.take(body)
		if !ok {
			return
		}
		a, b := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { s.serve(b) })
		defer wg.Wait()
		defer func() { _, _ = a.Close(), b.Close() }()
		talk(t, a, want)
	})
}

// take puts the re-encoded body into its place. It returns the error that go-amqp
// has to report, and false if the plane does not accept body.
func (s *script) take(body []byte) (want *wire.Error, ok bool) {
	code, _, err := wire.PeekDescriptor(body)
	gone := &wire.Error{Condition: "amqp:gone"}
	switch {
	case err != nil:
	case code == wire.CodeOpen:
		var p wire.Open
		err = p.Decode(body)
		s.open = reencodeOpen(&p)
	case code == wire.CodeBegin:
		var p wire.Begin
		err = p.Decode(body)
		p.RemoteChannel = wire.Some(0)
		s.begin = reencodeBegin(0, &p)
	case code == wire.CodeAttach:
		var p wire.Attach
		err = p.Decode(body)
		p.Name, p.Handle, p.Role = "r", 0, wire.RoleSender
		s.attach = reencodeAttach(0, &p)
		s.then = reencodeDetach(0, &wire.Detach{Error: gone})
		want = gone
	case code == wire.CodeDetach:
		var p wire.Detach
		err = p.Decode(body)
		p.Handle, want = 0, p.Error
		s.then = reencodeDetach(0, &p)
	case code == wire.CodeEnd:
		var p wire.End
		err = p.Decode(body)
		want = p.Error
		s.then = reencodeEnd(0, &p)
	case code == wire.CodeClose:
		var p wire.Close
		err = p.Decode(body)
		want = p.Error
		s.then = reencodeClose(&p)
	default:
		return nil, false
	}
	return want, err == nil
}

// talk opens everything over nc and, if want is set, waits until go-amqp has read
// the frame that carries it.
func talk(t *testing.T, nc net.Conn, want *wire.Error) {
	ctx := context.Background()
	ac, err := amqp.NewConn(ctx, nc, &amqp.ConnOptions{IdleTimeout: -1})
	require.NoError(t, err)
	as, err := ac.NewSession(ctx, nil)
	if err == nil {
		var rcv *amqp.Receiver
		if rcv, err = as.NewReceiver(ctx, "q", manual()); err == nil && want != nil {
			_, err = rcv.Receive(ctx, nil)
		}
	}
	if want == nil {
		return
	}
	require.ErrorContains(t, err, string(want.Condition))
}
