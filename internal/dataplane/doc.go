// Package dataplane is the connection's data path. It stands between go-amqp and
// the socket: a [Conn] is the net.Conn given to amqp.NewConn.
//
// go-amqp keeps SASL, open, begin, attach, detach, end, close and the keepalive.
// Transfer, flow and disposition never reach it: the plane parses and writes them
// itself, and keeps session windows, link credit and unsettled deliveries.
//
// # Two goroutines
//
// Each connection has one reader and one writer, started by [New], ended by the
// connection's failure or close, waited for by [Conn.Wait]. Nothing runs per
// session or per link. The reader never writes and never waits: what the peer is
// owed becomes a flag that the writer turns into a frame. Callers append to the
// writer's buffer themselves and wake it.
//
// # Locks
//
// A session's mu (ids, windows, links, unsettled deliveries) is taken before the
// outbox's mu (write buffer, who has something to flush), never after it. The
// connection's mu guards its maps and is taken inside neither. No lock is held
// across I/O, a channel operation, a timer or a callback: what has to be closed or
// signalled is gathered in an after and run when the locks are free.
//
// # Numbers
//
// transfer-ids, delivery-ids and delivery-counts are serial numbers of 32 bits
// (RFC 1982): they wrap, and only differences mean anything.
package dataplane
