package dataplane

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// still is a plane that does not run: the test calls the reader itself.
func still(t testing.TB) *Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return newConn(a, Options{})
}

// seeds are streams that a peer may send.
func seeds() [][]byte {
	h := wire.ProtocolHeader(wire.ProtoAMQP)
	s := wire.ProtocolHeader(wire.ProtoSASL)
	open := amqpFrame(0, &wire.Open{ContainerID: "x", MaxFrameSize: 512})
	sasl := encode(wire.TypeSASL, 0, (&wire.SASLMechanisms{Mechanisms: []wire.Symbol{"PLAIN"}}).Append)
	outcome := encode(wire.TypeSASL, 0, (&wire.SASLOutcome{}).Append)
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	return [][]byte{
		join(h[:], open, []byte{0, 0, 0, 8, 2, 0, 0, 0}, amqpFrame(0, &wire.Close{})),
		join(s[:], sasl, outcome, h[:], open, amqpFrame(0, &wire.Begin{RemoteChannel: wire.Some(0)})),
		join(h[:], open, []byte{0, 0, 0, 16, 3, 0, 0, 0, 1, 2, 3, 4, 0, 0x53, 0x18, 0x45}),
	}
}

// However a stream is cut into reads, the reader makes the same of it.
func FuzzSplitter(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, byte(1))
		f.Add(s, byte(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, step byte) {
		run := func(step int) (fed [][]byte, err error) {
			c := still(t)
			var buf []byte
			for rest := stream; len(rest) > 0 && err == nil; {
				n := min(step, len(rest))
				buf, rest = append(buf, rest[:n]...), rest[n:]
				var used, need int
				used, need, err = c.rd.consume(buf)
				buf = append([]byte(nil), buf[used:]...)
				if err == nil {
					require.Greater(t, need, len(buf), "it says how much is missing")
				}
			}
			return c.in.units, err
		}
		whole, wholeErr := run(max(len(stream), 1))
		cut, cutErr := run(int(step) + 1)
		require.Equal(t, whole, cut)
		if wholeErr == nil {
			require.NoError(t, cutErr)
		} else {
			require.Error(t, cutErr)
		}
	})
}

// mapped is a still plane with a session on channel 0: links to receive on with the
// peer's handles 0 (credit 3) and 1 (none), one to send on with 2, which has sent
// deliveries 0 to 4.
func mapped(t testing.TB) (*Conn, *Session) {
	c := still(t)
	c.rd.stage = stageRunning
	c.mu.Lock()
	c.phase = PhaseRunning
	c.mu.Unlock()
	s, err := c.ExpectSession()
	require.NoError(t, err)
	_, err = c.Write(amqpFrame(0, &wire.Begin{}))
	require.NoError(t, err)
	require.True(t, s.mapTo(0, &wire.Begin{IncomingWindow: 100, HandleMax: 100}))
	c.rd.byPeer[0] = s
	var links []*Link
	for i, role := range []wire.Role{wire.RoleReceiver, wire.RoleReceiver, wire.RoleSender} {
		name := string(rune('a' + i))
		l, err := s.Expect(role, name, LinkOptions{MaxMessage: 1000})
		require.NoError(t, err)
		at := wire.Attach{Name: name, Handle: uint32(i), Role: role, InitialDeliveryCount: wire.Some(0)}
		_, err = c.Write(amqpFrame(0, &at))
		require.NoError(t, err)
		at.Role, at.Source, at.Target = !role, new(wire.Source), new(wire.Target)
		require.True(t, s.attachIn(&at))
		links = append(links, l)
	}
	require.NoError(t, links[0].Grant(3, true))
	links[2].creditEnd = 5
	sendAll(t, links[2], 5)
	return c, s
}

// Whatever the body of a data frame, nothing panics, nothing grows, and the counters
// keep their order.
func fuzzData(f *testing.F, code uint64, seeds ...performative) {
	for _, s := range seeds {
		f.Add(s.Append(nil), s.Append(nil))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c, s := mapped(t)
		for _, body := range [][]byte{first, second, first} {
			if got, _, err := wire.PeekDescriptor(body); err != nil || got != code {
				return
			}
			err := c.rd.frame(wire.FrameHeader{}, body)
			if ferr := c.rd.finish(); err == nil {
				err = ferr
			}
			s.mu.Lock()
			held := s.in.near + len(s.in.far)
			require.LessOrEqual(t, held, 3)
			require.LessOrEqual(t, s.out.near+len(s.out.far), 5)
			for l := range s.links {
				if l.role == wire.RoleReceiver {
					held -= l.outstanding
					require.GreaterOrEqual(t, int32(l.limit.Load()-l.count), int32(0))
					require.LessOrEqual(t, len(l.queue), 3)
					require.LessOrEqual(t, len(l.back), 3)
					require.LessOrEqual(t, len(l.assembly.buf), 1000+maxTag)
				}
			}
			require.Zero(t, held)
			s.mu.Unlock()
			if err != nil {
				return
			}
			s.collect()
		}
	})
}

func FuzzTransfer(f *testing.F) {
	fuzzData(f, wire.CodeTransfer,
		&wire.Transfer{DeliveryID: wire.Some(7), DeliveryTag: []byte("t"), MessageFormat: wire.Some(0), More: true},
		&wire.Transfer{DeliveryID: wire.Some(1<<32 - 1), Settled: true},
		&wire.Transfer{Aborted: true, DeliveryID: wire.Some(0)},
		&wire.Transfer{Handle: 1, DeliveryID: wire.Some(0)},
	)
}

func FuzzFlow(f *testing.F) {
	fuzzData(f, wire.CodeFlow,
		&wire.Flow{NextIncomingID: wire.Some(0), IncomingWindow: 5, Echo: true},
		&wire.Flow{Handle: wire.Some(0), DeliveryCount: wire.Some(3), LinkCredit: wire.Some(0), Drain: true},
		&wire.Flow{Handle: wire.Some(2), DeliveryCount: wire.Some(1<<32 - 1), LinkCredit: wire.Some(1<<32 - 1), Drain: true, Echo: true},
	)
}

func FuzzDisposition(f *testing.F) {
	fuzzData(f, wire.CodeDisposition,
		&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 3, Settled: true, State: *accepted},
		&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: maxStep, State: *accepted},
		&wire.Disposition{Role: wire.RoleSender, First: 1, Last: 0, Settled: true},
	)
}
