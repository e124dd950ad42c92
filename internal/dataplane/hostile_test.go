package dataplane

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// frameOf is a frame on channel 0 with whatever else in its header, and body.
func frameOf(size uint32, doff, typ byte, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, size)
	b = append(b, doff, typ, 0, 0)
	return append(b, body...)
}

// amqpFrame is a well-formed frame around a performative.
func amqpFrame(channel uint16, f performative) []byte { return encodeAMQP(channel, f.Append) }

// nested is a flow whose properties are maps in maps, so deep.
func nested(depth int) []byte {
	inner := []byte{0x40}
	for range depth {
		b := []byte{0xd1, 0, 0, 0, 0, 0, 0, 0, 2, 0xa3, 1, 'k'}
		b = append(b, inner...)
		binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
		inner = b
	}
	f := wire.Flow{NextIncomingID: wire.Some(0), Properties: inner}
	return amqpFrame(0, &f)
}

// hostile are octets that no peer may send once a session with a link "in", whose
// handle is 3 and which has no credit, is up.
var hostile = map[string][]byte{
	"size of 4 GiB":              frameOf(1<<32-1, 2, 0),
	"size over what is agreed":   frameOf(1<<17+1, 2, 0),
	"size of 0":                  frameOf(0, 2, 0),
	"size of 7":                  frameOf(7, 2, 0),
	"doff of 0":                  frameOf(8, 0, 0),
	"doff of 255":                frameOf(16, 255, 0, make([]byte, 8)...),
	"type of 2":                  frameOf(8, 2, 2),
	"type of SASL":               frameOf(9, 2, 1, 0),
	"no performative":            frameOf(10, 2, 0, 0x53, 0x10),
	"unknown performative":       frameOf(12, 2, 0, 0x00, 0x53, 0x99, 0x45),
	"protocol header again":      []byte("AMQP\x00\x01\x00\x00"),
	"unknown channel":            amqpFrame(77, &wire.Flow{}),
	"unknown channel, transfer":  amqpFrame(77, &wire.Transfer{}),
	"unknown channel, end":       amqpFrame(77, &wire.End{}),
	"unknown handle":             amqpFrame(0, &wire.Flow{Handle: wire.Some(99)}),
	"unknown handle, transfer":   amqpFrame(0, &wire.Transfer{Handle: 99, DeliveryID: wire.Some(0)}),
	"unknown handle, detach":     amqpFrame(0, &wire.Detach{Handle: 99}),
	"flow without fields":        frameOf(12, 2, 0, 0x00, 0x53, 0x13, 0x45),
	"disposition without fields": frameOf(12, 2, 0, 0x00, 0x53, 0x15, 0x45),
	"transfer without fields":    frameOf(12, 2, 0, 0x00, 0x53, 0x14, 0x45),
	"disposition of everything":  amqpFrame(0, &wire.Disposition{Last: 1<<32 - 1, Settled: true}),
	"disposition backwards":      amqpFrame(0, &wire.Disposition{Role: true, First: 5, Last: 4, Settled: true}),
	"transfer without id":        amqpFrame(0, &wire.Transfer{Handle: 3}),
	"transfer with a long tag":   amqpFrame(0, &wire.Transfer{Handle: 3, DeliveryID: wire.Some(0), DeliveryTag: make([]byte, 33)}),
	"begin nobody asked for":     amqpFrame(5, &wire.Begin{RemoteChannel: wire.Some(44)}),
	"begin of its own":           amqpFrame(5, &wire.Begin{}),
	"attach under another name":  amqpFrame(0, &wire.Attach{Name: "other", Handle: 9, Source: &wire.Source{}}),
	"attach again":               amqpFrame(0, &wire.Attach{Name: "in", Handle: 9, Source: &wire.Source{}}),
	"open again":                 amqpFrame(0, &wire.Open{ContainerID: "x", MaxFrameSize: 512}),
	"nested 10,000 deep":         nested(10_000),
	"a list that claims 2^32-1":  frameOf(20, 2, 0, 0x00, 0x53, 0x13, 0xd0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff),
	"an array that claims 2^24": frameOf(27, 2, 0, 0x00, 0x53, 0x13, 0xd0, 0, 0, 0, 11, 0, 0, 0, 1,
		0xf0, 0, 0, 0, 5, 0, 0xff, 0xff, 0xff),
}

func TestConn_hostileFramesAreOneCleanLoss(t *testing.T) {
	for name, b := range hostile {
		t.Run(name, func(t *testing.T) {
			before := heap()
			synctest.Test(t, func(t *testing.T) {
				r := newBare(t, rigOptions{})
				r.open()
				s, _ := r.begin()
				l, _ := r.attach(s, "in", 3, wire.RoleReceiver)
				begun := time.Now()
				r.p.write(b)
				<-r.c.Done()
				r.c.Wait()
				assert.Less(t, time.Since(begun), time.Second)
				require.Error(t, r.c.Err())
				t.Log(r.c.Err())
				assert.Equal(t, r.c.Err(), s.Err())
				assert.Equal(t, r.c.Err(), l.Err())
				_, err := r.rest()
				assert.Equal(t, r.c.Err(), err)
				assert.Less(t, heap(), before+2<<20)
			})
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A connection that ends after any octet of any frame is a clean loss, too.
func TestConn_framesTruncatedAtEveryByte(t *testing.T) {
	var stream []byte
	for _, f := range []performative{
		&wire.Flow{NextIncomingID: wire.Some(0), IncomingWindow: 1 << 20, Handle: wire.Some(3), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(0)},
		&wire.Transfer{Handle: 3, DeliveryID: wire.Some(0), DeliveryTag: []byte("tag"), More: true},
		&wire.Transfer{Handle: 3},
		&wire.Disposition{Role: wire.RoleSender, First: 0, Last: 5, Settled: true, State: *accepted},
		&wire.Detach{Handle: 3, Closed: true, Error: &wire.Error{Condition: "c", Description: "d"}},
		&wire.End{Error: &wire.Error{Condition: "c", Info: wire.Map{{Key: wire.Symbol("k"), Value: "v"}}}},
	} {
		stream = append(stream, amqpFrame(0, f)...)
	}
	for n := range stream {
		// Cut off at n, and the frame that is cut made to look whole.
		for _, whole := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newBare(t, rigOptions{})
				r.open()
				s, _ := r.begin()
				l, _ := r.attach(s, "in", 3, wire.RoleReceiver)
				require.NoError(t, l.Grant(10, true))
				synctest.Wait()
				b := append([]byte(nil), stream[:n]...)
				if whole {
					mend(b)
				}
				r.p.write(b)
				synctest.Wait()
				r.p.hang()
				<-r.c.Done()
				r.c.Wait()
				require.Error(t, r.c.Err())
				require.Error(t, l.Err())
			})
		}
	}
}

// mend gives the last frame in b the size it has.
func mend(b []byte) {
	for len(b) >= 8 {
		n := binary.BigEndian.Uint32(b)
		if int(n) > len(b) {
			binary.BigEndian.PutUint32(b, uint32(len(b)))
			return
		}
		b = b[n:]
	}
}

func TestConn_opensOnlyWithTheRightHeader(t *testing.T) {
	for name, c := range map[string]struct{ say, want string }{
		"another protocol": {"HTTP/1.1 400 Bad Request\r\n", `"HTTP/1.1 400 Bad Request`},
		"half of one":      {"AMQQ", "instead of a protocol header"},
		"another version":  {"AMQP\x01\x01\x00\x09", "protocol"},
		"AMQP 0-9-1":       {"AMQP\x00\x00\x09\x01", "protocol header"},
		"TLS":              {"AMQP\x02\x01\x00\x00", "protocol 2 where 0 is due"},
		"SASL unasked":     {"AMQP\x03\x01\x00\x00", "protocol 3 where 0 is due"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				conn := New(a, Options{})
				p := newPeer(t, b, peerOptions{raw: true})
				h := wire.ProtocolHeader(wire.ProtoAMQP)
				_, err := conn.Write(h[:])
				require.NoError(t, err)
				buf := make([]byte, 8)
				_, err = b.Read(buf)
				require.NoError(t, err)
				p.write([]byte(c.say))
				<-conn.Done()
				conn.Wait()
				require.ErrorContains(t, conn.Err(), c.want)
				assert.Equal(t, PhaseHeader, conn.Phase())
				p.hang()
			})
		})
	}
}
