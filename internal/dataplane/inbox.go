package dataplane

import (
	"errors"
	"net"
	"sync"
)

// inboxLimit is how many octets may wait for go-amqp to read them. It reads as
// they come, so more means that it hangs or that the peer floods it.
const inboxLimit = 1 << 20

// inbox is what waits for go-amqp's Read: protocol headers and control frames,
// each a unit.
type inbox struct {
	mu    sync.Mutex
	units [][]byte
	size  int
	ready chan struct{} // capacity 1; the reader sends, Read receives
}

func (b *inbox) init() { b.ready = make(chan struct{}, 1) }

// push queues unit, or returns false if too much waits already.
func (b *inbox) push(unit []byte) bool {
	b.mu.Lock()
	if b.size+len(unit) > inboxLimit {
		b.mu.Unlock()
		return false
	}
	b.units = append(b.units, unit)
	b.size += len(unit)
	b.mu.Unlock()
	token(b.ready)
	return true
}

// pull moves the front unit, or as much of it as fits, into p.
func (b *inbox) pull(p []byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.units) == 0 {
		return 0
	}
	n := copy(p, b.units[0])
	b.size -= n
	if b.units[0] = b.units[0][n:]; len(b.units[0]) == 0 {
		b.units[0] = nil
		b.units = b.units[1:]
	}
	return n
}

var errFlooded = errors.New("more than 1 MiB of control frames unread")

// Read gives go-amqp one protocol header or control frame, or a part of one. It
// waits for one; the connection's error comes after the last of them.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if n := c.in.pull(p); n > 0 {
			return n, nil
		}
		select {
		case <-c.in.ready:
		case <-c.dead:
			if n := c.in.pull(p); n > 0 {
				return n, nil
			}
			return 0, c.readErr()
		}
	}
}

// readErr is what go-amqp takes for an orderly end if it is net.ErrClosed.
func (c *Conn) readErr() error {
	if err := c.Err(); !errors.Is(err, ErrClosed) {
		return err
	}
	return net.ErrClosed
}

// feed queues one frame for go-amqp.
func (c *Conn) feed(frame []byte) error {
	if !c.in.push(frame) {
		return errFlooded
	}
	return nil
}
