package amqptest

import (
	"slices"
	"testing"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

const (
	tracedFrames = 1000
	// Of a frame no more is kept than shows its performative. A transfer's is
	// short, and what follows it is a message.
	keptOfTransfer = 128
	keptOfFrame    = 1024
	shownOnFailure = 50
)

// trace keeps the last frames in a ring, which grows with them, guarded by the
// server's mutex. They are decoded when somebody looks.
type trace struct {
	ring []traced
	next int // in ring, once it is full
}

// traced is what is kept of a frame.
type traced struct {
	time      time.Time
	number    uint64 // of the connection
	container string
	sent      bool
	raw       bool // no frame
	size      int
	head      []byte // its start; reused when the ring comes round
}

// slot is where the next frame goes.
func (t *trace) slot() *traced {
	if len(t.ring) < tracedFrames {
		t.ring = append(t.ring, traced{})
		return &t.ring[len(t.ring)-1]
	}
	e := &t.ring[t.next]
	t.next = (t.next + 1) % tracedFrames
	return e
}

// inOrder is the ring from its oldest frame.
func (t *trace) inOrder() []traced {
	return slices.Concat(t.ring[t.next:], t.ring[:t.next])
}

// clock is the time, which is asked for once while the mutex is held.
func (s *Server) clock() time.Time {
	if s.now.IsZero() {
		s.now = time.Now()
	}
	return s.now
}

// passed notes a frame or protocol header that the server handles or writes;
// raw says that it is neither. What the server writes is at the end of c.out.
func (c *conn) passed(sent, raw bool, frame []byte) {
	e := c.srv.trace.slot()
	kept := keptOfFrame
	if len(frame) > 10 && frame[8] == 0 && frame[10] == byte(wire.CodeTransfer) {
		kept = keptOfTransfer
	}
	*e = traced{
		time: c.srv.clock(), number: c.number, container: c.peer.ContainerID, sent: sent, raw: raw, size: len(frame),
		head: append(e.head[:0], frame[:min(len(frame), kept)]...),
	}
	if c.srv.opts.Trace != nil {
		c.srv.logFrame(e)
	}
	if len(c.srv.faults) > 0 && !raw {
		c.counted(sent, frame)
	}
}

// showFrames logs the last frames once tb has failed, when it ends.
func (s *Server) showFrames(tb testing.TB) {
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		frames := s.Frames()
		for _, f := range frames[max(0, len(frames)-shownOnFailure):] {
			tb.Log(f)
		}
	})
}
