package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// The source's addresses. A receiver on one of the first three gets as many messages as it
// grants credit for; a sender may use any address.
const (
	nodeBytes    = "bytes"
	nodeJSON     = "json"
	nodeRequests = "requests"
	nodeReplies  = "replies" // the reply-to of the requests
)

// source is a peer that speaks just enough AMQP 1.0, at the least CPU: it
// sends messages that were encoded once and confirms what it is sent by one
// disposition for each read. It checks nothing and keeps nothing.
type source struct {
	running  sync.WaitGroup
	payloads map[string][][]byte // each address's, which follow each other in turn
}

func newSource() *source {
	return &source{payloads: map[string][][]byte{
		nodeBytes: keyed(), nodeJSON: {encoded(message(true))}, nodeRequests: {encoded(request(nodeReplies))},
	}}
}

// keyed is one payload for each first byte of a body, the key of lanes.
func keyed() [][]byte {
	all := make([][]byte, 0, batchSize)
	for key := range batchSize {
		m := message(false)
		m.Data[0][0] = byte(key)
		all = append(all, encoded(m))
	}
	return all
}

// encoded is the payload of a consuming scenario's transfers.
func encoded(m *amqp.Message) []byte {
	b, err := m.MarshalBinary()
	if err != nil {
		panic(err) // the message is a constant
	}
	return b
}

// serve accepts until the listener is closed. Each connection gets a
// goroutine, which ends with it.
func (src *source) serve(l *net.TCPListener, config *tls.Config) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return
		}
		src.running.Go(func() {
			if err := src.handle(conn, config); err != nil {
				fmt.Fprintln(os.Stderr, "source:", err)
			}
		})
	}
}

// handle serves one connection until its peer closes it.
func (src *source) handle(conn *net.TCPConn, config *tls.Config) error {
	s, err := newSocket(conn)
	if err != nil {
		return err
	}
	var stream io.ReadWriteCloser = s
	if config != nil {
		stream = tls.Server(s, config)
	}
	defer func() { _ = stream.Close() }() // the peer has closed already, or is of no use
	c := &sourceConn{source: src, rw: stream, in: make([]byte, 0, 256<<10), sessions: map[uint16]*sourceSession{}}
	return c.run()
}

// sourceConn is one connection. One goroutine reads, answers and writes: all
// that the credit allows is written before it reads again.
type sourceConn struct {
	source   *source
	rw       io.ReadWriter
	in       []byte // what was read and not yet taken
	out      []byte // answers, written before any transfer
	sessions map[uint16]*sourceSession
	closed   bool
}

// run returns nil when the connection ends by CLOSE or by EOF.
func (c *sourceConn) run() error {
	for !c.closed {
		switch err := c.fill(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := c.takeAll(); err != nil {
			return err
		}
		for _, s := range c.sessions {
			c.out = s.appendOwed(c.out)
		}
		if err := c.flush(); err != nil {
			return err
		}
		if err := c.pump(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads once, behind an incomplete frame if there is one.
func (c *sourceConn) fill() error {
	if len(c.in) == cap(c.in) {
		return fmt.Errorf("a frame of more than %d bytes", cap(c.in))
	}
	n, err := c.rw.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	return err
}

// takeAll handles every complete frame and keeps the rest.
func (c *sourceConn) takeAll() error {
	rest := c.in
	for len(rest) >= wire.FrameHeaderSize {
		if bytes.HasPrefix(rest, []byte("AMQP")) {
			c.answerHeader(wire.ProtoID(rest[4]))
			rest = rest[wire.FrameHeaderSize:]
			continue
		}
		h, err := wire.ParseFrameHeader(rest)
		if err != nil {
			return err
		}
		if uint32(len(rest)) < h.Size {
			break
		}
		if err := c.take(h, rest[uint32(h.DOff)*4:h.Size]); err != nil {
			return err
		}
		rest = rest[h.Size:]
	}
	c.in = c.in[:copy(c.in[:cap(c.in)], rest)]
	return nil
}

// answerHeader echoes a protocol header; a SASL layer begins with ours.
func (c *sourceConn) answerHeader(id wire.ProtoID) {
	header := wire.ProtocolHeader(id)
	c.out = append(c.out, header[:]...)
	if id == wire.ProtoSASL {
		mechanisms := wire.SASLMechanisms{Mechanisms: []wire.Symbol{"ANONYMOUS", "PLAIN"}}
		c.frame(wire.TypeSASL, 0, &mechanisms)
	}
}

// performative is anything that can be sent.
type performative interface{ Append(dst []byte) []byte }

// frame queues one.
func (c *sourceConn) frame(typ byte, channel uint16, p performative) {
	c.out = appendFrame(c.out, typ, channel, p)
}

// appendFrame appends the performative in a frame of its own.
func appendFrame(dst []byte, typ byte, channel uint16, p performative) []byte {
	start := len(dst)
	dst = p.Append(wire.BeginFrame(dst, typ, channel))
	wire.EndFrame(dst, start)
	return dst
}

// flush writes the answers.
func (c *sourceConn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.rw.Write(c.out)
	c.out = c.out[:0]
	return err
}

// pump writes transfers until no link has credit or window left.
func (c *sourceConn) pump() error {
	for _, s := range c.sessions {
		for _, l := range s.links {
			if err := c.pumpLink(s, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// pumpLink writes one link's transfers, and the answer to a drain behind
// them.
func (c *sourceConn) pumpLink(s *sourceSession, l *sourceLink) error {
	for batch := s.transfers(l); len(batch) > 0; batch = s.transfers(l) {
		if _, err := c.rw.Write(batch); err != nil {
			return err
		}
	}
	if !l.drain {
		return nil
	}
	c.frame(wire.TypeAMQP, s.channel, s.drained(l))
	return c.flush()
}
