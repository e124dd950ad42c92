package amqptest

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	readBufferSize = 64 << 10
	linger         = time.Second // for the client to close the socket after our CLOSE
	// outRoom is how much may wait in the write buffer before deliveries
	// stop; what answers the client's own frames goes beyond it, until
	// outLimit, where reading stops.
	outRoom  = 256 << 10
	outLimit = 4 << 20
)

// phase is what the client's next bytes must be.
type phase uint8

const (
	phaseHeader  phase = iota // a protocol header, SASL's or AMQP's
	phaseSASL                 // sasl-init
	phaseAMQP                 // AMQP's header, after SASL
	phaseOpen                 // OPEN
	phaseRunning              // any other performative
	phaseClosing              // our CLOSE is out: only the client's counts
)

// conn is one connection of a client. Everything but nc is guarded by the
// server's mutex.
type conn struct {
	srv    *Server
	nc     net.Conn
	number uint64        // in the order of arrival
	name   string        // for the log
	wake   chan struct{} // capacity 1: sent by signal, received by the writer

	phase    phase
	external string // the identity that Options.External is to look at
	asking   bool   // and is to look at before anything else is read
	user     string // who has authenticated
	peer     wire.Open
	sessions map[uint16]*session // by the client's channel
	channels []*session          // by ours
	closeIn  bool                // the client's CLOSE has come
	dead     bool                // no more I/O: the socket is closed or about to be
	ending   time.Time           // when the socket is closed at the latest; zero: not ending
	halfRead bool                // a frame of the client's has not come whole
	lastRead atomic.Int64        // Unix nanoseconds of the last bytes from the client

	out     []byte // written next
	writing bool   // the writer is sending what it swapped out
	starved bool   // deliveries wait for room in out
	touched bool   // in srv.touched
	drained sync.Cond
	stall

	// Reused by every frame.
	transfer    wire.Transfer
	tag         [4]byte
	flow        wire.Flow
	disposition wire.Disposition
	sections    wire.Sections
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc, name: peerName(nc), wake: make(chan struct{}, 1),
		sessions: map[uint16]*session{},
	}
	c.drained.L = &s.mu
	c.lastRead.Store(time.Now().UnixNano())
	return c
}

func peerName(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return "unknown"
}

// readLoop reads and handles the client's frames. Started by start, ends when
// the socket does, waited for by Close; it alone reads.
func (c *conn) readLoop() {
	buf := make([]byte, readBufferSize)
	from, to := 0, 0
	for {
		n, err := c.nc.Read(buf[to:])
		if err != nil && c.awoken() {
			err = nil
		}
		if n > 0 || err == nil {
			to += n
			c.lastRead.Store(time.Now().UnixNano())
			from += c.consume(buf[from:to])
			to = copy(buf, buf[from:to])
			from = 0
			if to == len(buf) { // one frame that is larger than the buffer
				buf = slices.Concat(buf, make([]byte, len(buf)))
			}
		}
		if err != nil {
			c.lost(err)
			return
		}
	}
}

// consume handles the complete frames at the start of b and returns how many
// bytes they were.
func (c *conn) consume(b []byte) int {
	s := c.srv
	s.lock()
	defer s.unlock()
	for c.stopped(len(b)) && !c.dead {
		c.drained.Wait()
	}
	done := 0
	for !c.dead && !c.deaf() {
		n := c.next(b[done:])
		if n == 0 {
			break
		}
		done += n
		if c.asking {
			c.askExternal()
		}
		s.fireFaults()
	}
	if c.dead {
		return len(b)
	}
	c.halfRead = done < len(b)
	return done
}

// next handles one frame or protocol header at the start of b and returns its
// length, 0 if it is not complete.
func (c *conn) next(b []byte) int {
	if len(b) < wire.FrameHeaderSize {
		return 0
	}
	if c.phase == phaseHeader || c.phase == phaseAMQP {
		if !c.arrives(b[:wire.FrameHeaderSize]) {
			return 0
		}
		c.protocolHeader(b[:wire.FrameHeaderSize])
		return wire.FrameHeaderSize
	}
	h, err := wire.ParseFrameHeader(b)
	if err != nil {
		c.violatef(ruleFrame, "%v", err)
		return len(b)
	}
	if limit := c.largest(); h.Size > limit {
		c.violatef(ruleFrameSize, "a frame of %d bytes, %d are allowed", h.Size, limit)
		return len(b)
	}
	if uint32(len(b)) < h.Size {
		return 0
	}
	if !c.arrives(b[:h.Size]) {
		return 0
	}
	c.frame(h, b[int(h.DOff)*4:h.Size])
	return int(h.Size)
}

// largest is how many bytes the client's next frame may have: before it has
// our OPEN, what everybody must take.
func (c *conn) largest() uint32 {
	if c.phase == phaseSASL || c.phase == phaseOpen {
		return minMaxFrameSize
	}
	return c.srv.opts.MaxFrameSize
}

// performative is what write can send.
type performative interface{ Append(dst []byte) []byte }

// write appends one frame to what is written next. One that is larger than the
// client takes cannot be said in any other way, so it closes the connection.
func (c *conn) write(channel uint16, p performative) {
	if c.phase == phaseClosing || c.dead {
		return
	}
	start := len(c.out)
	c.out = appendFrame(c.out, wire.TypeAMQP, channel, p)
	limit := max(c.peer.MaxFrameSize, minMaxFrameSize)
	if size := len(c.out) - start; c.phase == phaseRunning && uint64(size) > uint64(limit) {
		c.out = c.out[:start]
		c.shut(refusal(amqp.ErrCondFrameSizeTooSmall, fmt.Sprintf("a frame of %d bytes, %d are allowed", size, limit)))
		return
	}
	c.passed(true, false, c.out[start:])
	c.touch()
}

// writeSASL is write for the frames before OPEN.
func (c *conn) writeSASL(p performative) {
	start := len(c.out)
	c.out = appendFrame(c.out, wire.TypeSASL, 0, p)
	c.passed(true, false, c.out[start:])
	c.touch()
}

func appendFrame(dst []byte, typ byte, channel uint16, p performative) []byte {
	start := len(dst)
	dst = p.Append(wire.BeginFrame(dst, typ, channel))
	wire.EndFrame(dst, start)
	return dst
}

// touch makes unlock wake the writer.
func (c *conn) touch() {
	if !c.touched {
		c.touched = true
		c.srv.touched = append(c.srv.touched, c)
	}
}

// emptyFrame is a heartbeat.
var emptyFrame = binary.BigEndian.AppendUint64(nil, 8<<32|2<<24)
