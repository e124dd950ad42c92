package amqptest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// deaf is the socket of a connection that nobody reads or writes.
type deaf struct{ net.Conn }

func (deaf) RemoteAddr() net.Addr             { return nil }
func (deaf) SetWriteDeadline(time.Time) error { return nil }
func (deaf) Close() error                     { return nil }

// still is a server with one connection and no goroutine: what the client
// sends is handed to it, and what it sends is kept.
type still struct {
	s     *Server
	c     *conn
	buf   []byte // received, and not consumed yet
	spare []byte
	out   []byte // everything that the server has sent
}

func newStill(dialect amqpflow.Dialect, reads ...[]byte) *still {
	s := NewServer(&Options{Dialect: dialect, MaxFrameSize: 1 << 16, ChannelMax: 3, HandleMax: 5, Window: 8, External: func(identity string, _ net.Conn) error {
		if identity == "nobody" {
			return errors.New("refused")
		}
		return nil
	}})
	c := newConn(s, deaf{})
	s.conns[c] = struct{}{}
	st := &still{s: s, c: c}
	st.put(fuzzed)
	for _, b := range reads {
		st.receive(b)
	}
	return st
}

// receive hands b to the connection as one read, and writes what it has to say.
func (st *still) receive(b []byte) {
	st.buf = append(st.buf, b...)
	st.buf = st.buf[st.c.consume(st.buf):]
	for {
		buf, _, end := st.c.swap(st.spare, time.Now())
		if end || len(buf) == 0 {
			return
		}
		st.out = append(st.out, buf...)
		st.spare = buf
	}
}

// conversation is what a client of that dialect sends, in phases.
func conversation(dialect amqpflow.Dialect) (phases [][]byte) {
	var b []byte
	add := func(parts ...[]byte) { b = append(b, bytes.Join(parts, nil)...) }
	phase := func() { phases, b = append(phases, b), nil }
	header := func(id wire.ProtoID) []byte { h := wire.ProtocolHeader(id); return h[:] }
	amqp := func(ps ...performative) {
		for _, p := range ps {
			add(frameOf(wire.TypeAMQP, 0, p, nil))
		}
	}
	add(header(wire.ProtoSASL), frameOf(wire.TypeSASL, 0, &wire.SASLInit{Mechanism: mechanismExternal, InitialResponse: []byte("me")}, nil))
	phase()
	add(header(wire.ProtoAMQP))
	phase()
	amqp(&wire.Open{ContainerID: "fuzz", MaxFrameSize: 1024, ChannelMax: 3, IdleTimeout: 1000})
	phase()
	amqp(&wire.Begin{IncomingWindow: 6, OutgoingWindow: 100, HandleMax: 5})
	phase()
	out, in, second := attachSender(0), attachReceiver(1), attachSender(2)
	if dialect != amqpflow.DialectRabbitMQ { // which has no second mode
		second.RcvSettleMode = rcvSecond
	}
	out.Target.Address, second.Target.Address, in.Source.Address = fuzzedIn(dialect), fuzzedIn(dialect), fuzzedIn(dialect)
	amqp(out, second)
	phase()
	delivery, more := first(0), first(1)
	more.More = true
	add(frameOf(wire.TypeAMQP, 0, &delivery, hello), frameOf(wire.TypeAMQP, 0, &more, hello),
		frameOf(wire.TypeAMQP, 0, &wire.Transfer{}, nil))
	answered := first(2)
	answered.Handle = 2
	add(frameOf(wire.TypeAMQP, 0, &answered, hello))
	phase()
	credit := linkFlow(3)
	credit.Handle, credit.NextOutgoingID, credit.IncomingWindow = wire.Some(1), 4, 6
	amqp(in, credit)
	phase()
	return phases
}

// tails are what a client may send last.
func tails() [][]byte {
	var tails [][]byte
	for _, p := range []performative{
		&wire.Open{ContainerID: "again", MaxFrameSize: 512},
		&wire.Begin{},
		&wire.End{},
		&wire.Close{Error: &wire.Error{Condition: "amqp:internal-error", Description: "why"}},
		attachSender(3), attachReceiver(3),
		&wire.Attach{
			Name: "in", Handle: 4, Role: wire.RoleReceiver, Unsettled: wire.Map{{Key: []byte{0, 0, 0, 0}}},
			Source: &wire.Source{Address: "orders", HasAddress: true, Outcomes: []wire.Symbol{"amqp:accepted:list"}, DistributionMode: "copy"},
			Target: &wire.Target{ExpiryPolicy: wire.ExpireNever},
		},
		&wire.Attach{Name: "dynamic", Handle: 4, Role: wire.RoleReceiver, Source: &wire.Source{Dynamic: true}, Target: &wire.Target{}},
		&wire.Attach{
			Name: "topic", Handle: 4, Role: wire.RoleReceiver, MaxMessageSize: 100,
			Source: &wire.Source{Address: "prices", HasAddress: true, Capabilities: []wire.Symbol{"topic"}}, Target: &wire.Target{},
		},
		&wire.Attach{Name: "relay", Handle: 4, Target: &wire.Target{}, InitialDeliveryCount: wire.Some(0)},
		&wire.Attach{Name: "t", Handle: 4, Coordinator: &wire.Coordinator{}, InitialDeliveryCount: wire.Some(1<<32 - 1)},
		&wire.Detach{Handle: 1, Closed: true}, &wire.Detach{Handle: 1},
		&wire.Flow{NextIncomingID: wire.Some(0), IncomingWindow: 1 << 31, NextOutgoingID: 4, Echo: true},
		&wire.Flow{
			NextIncomingID: wire.Some(3), IncomingWindow: 100, NextOutgoingID: 4, Handle: wire.Some(1),
			DeliveryCount: wire.Some(2), LinkCredit: wire.Some(1000), Drain: true, Echo: true,
		},
		&wire.Disposition{Role: wire.RoleReceiver, Last: 1, Settled: true, State: wire.State{Kind: wire.StateAccepted}},
		&wire.Disposition{Role: wire.RoleReceiver, State: wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "a:b"}}},
		&wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: wire.State{
			Kind: wire.StateModified, DeliveryFailed: true, UndeliverableHere: true, Annotations: wire.Map{{Key: wire.Symbol("x-a"), Value: "b"}},
		}},
		&wire.Disposition{Role: wire.RoleSender, First: 2, Last: 2, Settled: true},
		&wire.Transfer{DeliveryID: wire.Some(3), DeliveryTag: []byte("t"), MessageFormat: wire.Some(0), More: true},
		&wire.Transfer{DeliveryID: wire.Some(3), DeliveryTag: []byte("t"), MessageFormat: wire.Some(7), Settled: true},
		&wire.Transfer{DeliveryID: wire.Some(3), DeliveryTag: []byte("t"), MessageFormat: wire.Some(0), Aborted: true},
	} {
		tails = append(tails, frameOf(wire.TypeAMQP, 0, p, hello))
		tails = append(tails, frameOf(wire.TypeAMQP, 0, p, nil))
	}
	// A message that expires, is scheduled and says where it goes.
	message := (&wire.Header{TTL: 5, HasTTL: true}).Append(nil)
	message, err := wire.AppendSection(message, wire.CodeMessageAnnotations, wire.Map{{Key: wire.Symbol("x-opt-delivery-time"), Value: int64(1)}})
	if err != nil {
		panic(err)
	}
	message = append((&wire.Properties{To: "orders", AbsoluteExpiryTime: time.UnixMilli(1)}).Append(message), hello...)
	tails = append(tails, frameOf(wire.TypeAMQP, 0, &wire.Transfer{
		DeliveryID: wire.Some(3), DeliveryTag: []byte("t"), MessageFormat: wire.Some(0),
	}, message))
	return append(tails, emptyFrame, []byte("AMQP\x02\x01\x00\x00"), nil)
}

// framed makes frames on channel 0 of data: a length in one octet, and as much
// of a body, again and again.
func framed(data []byte) (b []byte) {
	for len(data) > 0 {
		n := min(int(data[0]), len(data)-1)
		start := len(b)
		b = wire.BeginFrame(b, wire.TypeAMQP, 0)
		b = append(b, data[1:1+n]...)
		wire.EndFrame(b, start)
		data = data[1+n:]
	}
	return b
}

// Whatever a client sends, in whichever phase and whatever pieces: it gets
// well-formed frames that it takes, no more than in proportion, and when it is
// gone nothing of it is left.
func FuzzServerConnection(f *testing.F) {
	for d, phases := range conversations {
		for i, next := range phases {
			f.Add(byte(i|d<<3), next)
			f.Add(byte(i|d<<3)|isCut|isShown, next)
		}
	}
	phases := conversations[0]
	for i, tail := range tails() {
		f.Add(byte(len(phases))|byte(i%3)<<3, tail)
		if len(tail) > 8 {
			body := tail[8:]
			f.Add(byte(len(phases))|isFramed, append([]byte{byte(len(body))}, body...))
		}
	}
	f.Fuzz(func(t *testing.T, mode byte, data []byte) { explore(t, mode, data) })
}

// Flags of a mode. Its lowest three bits are the phases that come first, the
// next two the dialect.
const isShown, isFramed, isCut = 1 << 5, 1 << 6, 1 << 7

var (
	spoken        = [...]amqpflow.Dialect{amqpflow.DialectGeneric, amqpflow.DialectArtemis, amqpflow.DialectRabbitMQ}
	conversations = [...][][]byte{conversation(spoken[0]), conversation(spoken[1]), conversation(spoken[2])}
)

// fuzzedIn is the name of the queue that has messages.
func fuzzedIn(dialect amqpflow.Dialect) string {
	if dialect == amqpflow.DialectRabbitMQ {
		return "/queues/orders"
	}
	return "orders"
}

// explore sends data after the first phases, all at once or in pieces.
func explore(t *testing.T, mode byte, data []byte) {
	at := int(mode>>3&3) % len(spoken)
	phases := conversations[at]
	st := newStill(spoken[at], phases[:int(mode&7)%(len(phases)+1)]...)
	if mode&isFramed != 0 {
		data = framed(data)
	}
	piece := max(len(data), 1)
	if mode&isCut != 0 {
		piece = 1 + len(data)/64
	}
	for b := range slices.Chunk(data, piece) {
		st.receive(b)
	}
	st.c.lost(io.EOF)
	if mode&isShown != 0 {
		for _, frame := range st.s.Frames() {
			_ = frame.String()
		}
	}
	_ = st.s.Close() // stops the timers, and returns what the client broke
	links := len(st.s.attached)
	for _, n := range st.s.nodes {
		links += len(n.links)
	}
	switch err := wellFormed(st.out, max(minMaxFrameSize, st.c.peer.MaxFrameSize)); {
	case err != nil:
		t.Error(err)
	case len(st.s.conns) > 0 || links > 0:
		t.Errorf("left over: %d connections, %d links", len(st.s.conns), links)
	case len(st.out) > 1<<16+64*len(data):
		t.Errorf("%d bytes for %d", len(st.out), len(data))
	}
}

// fuzzed is what waits in the queue, the last one larger than the client's frames.
var fuzzed = func() []*message {
	ms, err := (&Server{dialect: generic}).encode(append(numbered(2), text(string(make([]byte, 1200)))))
	if err != nil {
		panic(err)
	}
	return ms
}()

// put is Put of copies.
func (st *still) put(ms []*message) {
	st.s.lock()
	defer st.s.unlock()
	n, e := st.s.node(fuzzedIn(st.s.dialect.names), kindQueue)
	if e != nil {
		panic(e)
	}
	for _, m := range ms {
		m := *m
		n.publish(&m)
	}
}

// wellFormed returns an error unless b is what the server may send to a client
// that takes frames of at most largest bytes. It is the fuzz target's inner
// loop, hence no assertions.
func wellFormed(b []byte, largest uint32) error {
	for len(b) > 0 {
		if id, err := wire.ParseProtocolHeader(b); err == nil && id != wire.ProtoTLS {
			b = b[8:]
			continue
		}
		h, err := wire.ParseFrameHeader(b)
		switch {
		case err != nil:
			return err
		case int(h.Size) > len(b) || h.Size > largest:
			return fmt.Errorf("a frame of %d bytes", h.Size)
		}
		if err := decodes(b[8:h.Size]); err != nil {
			return err
		}
		b = b[h.Size:]
	}
	return nil
}

func decodes(body []byte) error {
	if len(body) == 0 {
		return nil // a heartbeat
	}
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return err
	}
	if _, err := wire.Check(body); err != nil {
		return err
	}
	p, known := decoders[code]
	if !known {
		return fmt.Errorf("%s", performativeName(code))
	}
	return p.Decode(body)
}

// decoders are what the server may send. Decode overwrites, and one goroutine
// runs the target.
var decoders = map[uint64]interface{ Decode(body []byte) error }{
	wire.CodeOpen: new(wire.Open), wire.CodeBegin: new(wire.Begin), wire.CodeAttach: new(wire.Attach),
	wire.CodeFlow: new(wire.Flow), wire.CodeTransfer: new(wire.Transfer), wire.CodeDisposition: new(wire.Disposition),
	wire.CodeDetach: new(wire.Detach), wire.CodeEnd: new(wire.End), wire.CodeClose: new(wire.Close),
	wire.CodeSASLMechanisms: new(wire.SASLMechanisms), wire.CodeSASLOutcome: new(wire.SASLOutcome),
}

func TestConversation_breaksNoRule(t *testing.T) {
	for i, dialect := range spoken {
		st := newStill(dialect, conversations[i]...)
		require.NoError(t, errors.Join(st.s.violations...))
		require.NoError(t, wellFormed(st.out, 1024))
		require.Equal(t, 3, st.s.Unsettled("orders"))
	}
}

func BenchmarkStill(b *testing.B) {
	for b.Loop() {
		st := newStill(spoken[0], conversations[0]...)
		st.c.lost(io.EOF)
	}
}
