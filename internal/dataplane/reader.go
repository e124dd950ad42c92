package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// readBuffer is how much one call of the socket's Read may bring. A frame that is
// larger makes the buffer as large as itself.
const readBuffer = 64 << 10

// stage is what the reader has to see next.
type stage uint8

const (
	stageHeader  stage = iota // a protocol header
	stageSASL                 // SASL frames
	stageHeader2              // the AMQP header after SASL
	stageOpen                 // OPEN
	stageRunning              // any frame but OPEN
	stageClosed               // nothing: the peer's CLOSE has come
)

// reader parses what the peer sends, in place. Its fields are its own; what others
// see as well stands in sessions and links, under their locks.
type reader struct {
	c       *Conn
	stage   stage
	byPeer  map[uint16]*Session // by the peer's channel
	refresh time.Time           // when the read deadline is set anew

	intake intake
	later  after   // reused by the hot frames
	tokens []*Link // links to signal when this read is worked off
	wake   bool    // the writer has something to collect

	transfer    wire.Transfer
	flow        wire.Flow
	disposition wire.Disposition
}

func (r *reader) init(c *Conn) {
	r.c = c
	r.byPeer = make(map[uint16]*Session)
}

// loop reads until the connection is dead or the peer is gone. Started by New,
// waited for by Wait, alone in reading the socket.
func (r *reader) loop() {
	err := r.run()
	if r.stage != stageClosed {
		close(r.c.peerGone)
	}
	r.c.fail(err)
}

func (r *reader) run() error {
	buf := make([]byte, readBuffer)
	start, end := 0, 0
	for {
		if err := r.deadline(); err != nil {
			return err
		}
		n, err := r.c.nc.Read(buf[end:])
		end += n
		if n > 0 {
			used, need, perr := r.consume(buf[start:end])
			if ferr := r.finish(); perr == nil {
				perr = ferr
			}
			if errors.Is(perr, wire.ErrMalformed) {
				return violation("%w", perr)
			}
			if perr != nil {
				return perr
			}
			start += used
			if start == end {
				start, end = 0, 0
			}
			if len(buf)-start < need || end == len(buf) {
				old := buf
				if need > len(buf) {
					buf = make([]byte, need)
				}
				end = copy(buf, old[start:end])
				start = 0
			}
		}
		if err != nil {
			return r.readError(err)
		}
	}
}

// deadline moves the read deadline on, at most every tenth of Idle.
func (r *reader) deadline() error {
	idle := r.c.opts.Idle
	if r.stage == stageClosed || idle < 0 {
		return nil
	}
	now := time.Now()
	if now.Before(r.refresh) {
		return nil
	}
	r.refresh = now.Add(idle / 10)
	return r.c.nc.SetReadDeadline(now.Add(idle + idle/10))
}

func (r *reader) readError(err error) error {
	switch {
	case r.stage == stageClosed || r.c.silenced.Load():
		return ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w for %v", ErrIdle, r.c.opts.Idle)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("peer closed the socket without a close: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("read: %w", err)
}

// consume works off the whole units at the front of b. It returns how many octets
// they were, and how many the unit behind them needs at least.
func (r *reader) consume(b []byte) (used, need int, err error) {
	for {
		rest := b[used:]
		if r.stage == stageHeader || r.stage == stageHeader2 {
			if magic := []byte("AMQP"); !bytes.HasPrefix(magic, rest[:min(len(rest), 4)]) {
				return used, 0, violation("%q instead of a protocol header", rest[:min(len(rest), 32)])
			}
			if len(rest) < 8 {
				return used, 8, nil
			}
			if err := r.header(rest[:8]); err != nil {
				return used, 0, err
			}
			used += 8
			continue
		}
		if len(rest) < wire.FrameHeaderSize {
			return used, wire.FrameHeaderSize, nil
		}
		h, err := wire.ParseFrameHeader(rest)
		if err != nil {
			return used, 0, err
		}
		if h.Size > r.c.opts.MaxFrame {
			return used, 0, violation("frame of %d octets, %d are agreed", h.Size, r.c.opts.MaxFrame)
		}
		if len(rest) < int(h.Size) {
			return used, int(h.Size), nil
		}
		if err := r.frame(h, rest[int(h.DOff)*4:h.Size]); err != nil {
			return used, 0, err
		}
		used += int(h.Size)
	}
}

// finish hands over what one read of the socket has brought: deliveries under one
// lock a session, one signal a link, one wake-up of the writer. Whoever it has
// signalled may run before the next read, which is cheaper there than on another
// processor, and brings more.
func (r *reader) finish() error {
	err := r.intake.handOver(r)
	signalled := len(r.tokens) > 0
	for i, l := range r.tokens {
		r.tokens[i] = nil
		l.tokenDue = false
		token(l.ready)
	}
	r.tokens = r.tokens[:0]
	if r.wake {
		r.wake = false
		r.c.out.rouse()
	}
	if signalled {
		runtime.Gosched()
	}
	return err
}

// signal remembers to signal l when this read is worked off.
func (r *reader) signal(l *Link) {
	if !l.tokenDue {
		l.tokenDue = true
		r.tokens = append(r.tokens, l)
	}
}

// after runs what a session's lock held up, except waking the writer.
func (r *reader) after(a *after) {
	r.wake = r.wake || a.wake
	a.wake = false
	a.run(r.c)
	clear(a.notify)
	clear(a.close)
	clear(a.done)
	*a = after{close: a.close[:0], done: a.done[:0], notify: a.notify[:0]}
}

// frame works off one frame.
func (r *reader) frame(h wire.FrameHeader, body []byte) error {
	if len(body) == 0 || r.stage == stageClosed {
		return nil
	}
	if (h.Type == wire.TypeSASL) != (r.stage == stageSASL) {
		return violation("frame of type %d out of place", h.Type)
	}
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return err
	}
	switch {
	case r.stage == stageSASL:
		return r.sasl(code, body)
	case code == wire.CodeTransfer && r.stage == stageRunning:
		return r.intake.transfer(r, h.Channel, body)
	}
	if err := r.intake.handOver(r); err != nil {
		return err
	}
	if r.c.silenced.Load() && code != wire.CodeClose {
		return nil
	}
	if (code == wire.CodeOpen) != (r.stage == stageOpen) && code != wire.CodeClose {
		return violation("performative 0x%02x out of place", code)
	}
	switch code {
	case wire.CodeOpen:
		return r.open(h.Channel, body)
	case wire.CodeBegin:
		return r.begin(h.Channel, body)
	case wire.CodeAttach:
		return r.attach(h.Channel, body)
	case wire.CodeFlow:
		return r.flowIn(h.Channel, body)
	case wire.CodeDisposition:
		return r.dispositionIn(h.Channel, body)
	case wire.CodeDetach:
		return r.detach(h.Channel, body)
	case wire.CodeEnd:
		return r.end(h.Channel, body)
	case wire.CodeClose:
		return r.close(body)
	}
	return violation("unknown performative 0x%02x", code)
}

// session returns the session mapped to the peer's channel.
func (r *reader) session(channel uint16, what string) (*Session, error) {
	if s := r.byPeer[channel]; s != nil {
		return s, nil
	}
	return nil, violation("%s on channel %d, where no session is", what, channel)
}
