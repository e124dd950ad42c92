package dataplane

import "time"

// Close ends the connection and returns nil. Before the peer's OPEN it closes the
// socket at once. After it, everything written is flushed, and the socket is read
// on until the peer's CLOSE or its end, for at most Options.CloseLinger: a socket
// closed with octets unread resets the connection, and a peer that is reset may
// drop the settlements it has not read yet. Close writes a CLOSE if go-amqp has
// written none.
//
// go-amqp's own Close calls this one with a mutex held, on which its other
// goroutines then wait. Where that matters (in a synctest bubble such a wait stops
// the clock), call this one first.
//
// Spec: 2.4.3.
func (c *Conn) Close() error {
	if !c.closing.CompareAndSwap(false, true) {
		<-c.dead
		return nil
	}
	if c.Phase() != PhaseRunning {
		c.fail(ErrClosed)
		return nil
	}
	c.writeClose(nil)
	linger := time.NewTimer(c.opts.CloseLinger)
	defer linger.Stop()
	for _, step := range []<-chan struct{}{c.out.flushed, c.peerGone} {
		select {
		case <-step:
		case <-c.dead:
		case <-linger.C:
			c.fail(ErrClosed)
		}
	}
	c.fail(ErrClosed)
	return nil
}

// writeClose queues the CLOSE in frame, or one without error if frame is nil,
// behind everything that was settled; it does so once. From here nothing on the
// connection can be sent.
func (c *Conn) writeClose(frame []byte) {
	c.lose(ErrClosed)
	if frame == nil {
		frame = closeFrame()
	}
	c.silenced.Store(true)
	c.out.finish(frame, c.closing.Load())
}
