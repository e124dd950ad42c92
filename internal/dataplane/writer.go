package dataplane

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// writeChunk is what one call of the socket's Write gets at most, so that a slow
// peer is not taken for one that has stopped.
const writeChunk = 64 << 10

// writeLoop writes what is queued until the connection is dead. Started by New,
// waited for by Wait, alone in writing to the socket.
func (c *Conn) writeLoop() {
	defer c.out.timer.Stop()
	var next time.Time // when the write deadline is refreshed
	for {
		force := false
		select {
		case <-c.dead:
			return
		case <-c.out.wake:
		case <-c.out.timer.C:
			force = true
		}
		for {
			if !force {
				// Whoever is about to queue more may do so before the system call.
				runtime.Gosched()
			}
			more, err := c.flush(force, &next)
			if err != nil {
				c.fail(err)
				return
			}
			if !more {
				break
			}
			force = false
		}
		if c.out.done() {
			close(c.out.flushed)
		}
	}
}

// flush collects and writes once. It returns false if there was nothing to do.
func (c *Conn) flush(force bool, next *time.Time) (bool, error) {
	soft, urgent, ok := c.out.marked(force)
	if !ok {
		return false, nil
	}
	for _, s := range soft {
		s.collect()
	}
	for _, s := range urgent {
		s.collect()
	}
	b := c.out.swap(soft, urgent)
	err := c.writeAll(b, next)
	c.out.giveBack(b[:0])
	return true, err
}

func (c *Conn) writeAll(b []byte, next *time.Time) error {
	limit := c.opts.WriteTimeout
	for len(b) > 0 {
		if now := time.Now(); limit > 0 && !now.Before(*next) {
			*next = now.Add(limit / 10)
			if err := c.nc.SetWriteDeadline(now.Add(limit + limit/10)); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		n, err := c.nc.Write(b[:min(len(b), writeChunk)])
		b = b[n:]
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("write: %w", err)
		case n == 0:
			return fmt.Errorf("no progress writing for %v: %w", limit, err)
		default:
			*next = time.Time{}
		}
	}
	return nil
}
