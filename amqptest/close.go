package amqptest

import (
	"net"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// onClose answers the client's CLOSE. The client closes the socket; if it does
// not, it is closed after linger.
func (c *conn) onClose(body []byte) {
	var cl wire.Close
	if err := cl.Decode(body); err != nil {
		c.violatef(rulePerformative, "close: %v", err)
		return
	}
	if !c.fieldsHold("close", cl.Error) {
		return
	}
	c.srv.log.Info("connection closed by the client", "peer", c.name, "error", wireError(cl.Error))
	c.closeIn = true
	if c.srv.ignores(subject{conn: c}, faultIgnoreClose) {
		c.release()
		return
	}
	c.closing(&wire.Close{})
}

// closing sends what is owed and our CLOSE, the last frame of all.
func (c *conn) closing(last *wire.Close) {
	for _, ses := range inOrder(c.sessions) {
		ses.flush()
	}
	c.release()
	c.write(0, last)
	c.end()
}

// end gives the client and the last write linger.
func (c *conn) end() {
	c.phase = phaseClosing
	c.ending = time.Now().Add(linger)
	_ = c.nc.SetWriteDeadline(c.ending) // fails only on a socket that is closed
	c.touch()
}

// closingFrame looks for the client's CLOSE after ours.
func (c *conn) closingFrame(code uint64) {
	c.closeIn = code == wire.CodeClose
}

// shut closes the connection from our side: a CLOSE with e where an OPEN has
// been sent, and linger for the client to answer and to close the socket: one
// that we close over unread bytes would take our CLOSE with it.
func (c *conn) shut(e *wire.Error) {
	if c.phase == phaseClosing || c.dead {
		return
	}
	if c.phase == phaseRunning {
		c.closing(&wire.Close{Error: e})
		return
	}
	c.end()
}

// drop cuts the connection without a word.
func (c *conn) drop() {
	if c.dead {
		return
	}
	c.dead = true
	c.out = nil
	c.release()
	c.touch()
	c.drained.Broadcast()
	c.srv.cut = append(c.srv.cut, c)
}

// lost ends the connection after the socket has failed or was closed.
func (c *conn) lost(err error) {
	s := c.srv
	s.lock()
	s.log.Debug("connection ended", "peer", c.name, "error", err)
	c.drop()
	delete(s.conns, c)
	s.forget(c)
	s.unlock()
}

// release ends every session: what their links hold goes back to the queues.
func (c *conn) release() {
	for _, ses := range inOrder(c.sessions) {
		ses.release()
	}
	clear(c.sessions)
	c.channels = nil
}

// closeRaw closes the socket below TLS, whose own close may wait for the peer.
func (c *conn) closeRaw() {
	_ = c.socket().Close() // there is nobody left to tell
}

// socket is what is below TLS, if there is TLS.
func (c *conn) socket() net.Conn {
	if t, ok := c.nc.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c.nc
}
