package amqptest

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// session is one session of a connection, guarded by the server's mutex.
// Spec: 2.5.
type session struct {
	conn      *conn
	in        uint16 // the client's channel
	out       uint16 // ours
	ended     bool   // our END is out, the client's is awaited
	releasing bool   // it ends, and its links with it
	most      uint32 // the highest handle that the client takes

	links   map[uint32]*link // by the client's handle
	handles []*link          // by ours

	// What the client sends.
	nextIn      uint32               // transfer-id of its next transfer frame
	inWindow    uint32               // transfer frames that it may send
	withheld    bool                 // a fault withholds its window
	lifted      bool                 // and has just let go of it
	incoming    uint32               // delivery-id of its next delivery
	anyIncoming bool                 // incoming counts
	firstIn     uint32               // delivery-id of its first delivery
	unsettledIn map[uint32]*answered // not settled by us: for the client to settle (rcv-settle-mode second), or by a fault
	fresh       []answered           // answered, the client has not been told yet
	answers     answers              // not sent yet
	creditors   []*link              // owe credit, unless detached since
	owesFlow    bool                 // the client is to hear its window
	owing       bool                 // in srv.owing
	over        excused              // delivery-ids that need no settlement of the client's

	// What we send.
	nextOut   uint32 // transfer-id of our next transfer frame
	outWindow uint32 // transfer frames that we may send
	outgoing  uint32 // delivery-id of our next delivery
	heard     bool   // the client has told us a next-incoming-id
	heardNext uint32 // the last one
	unsettled map[uint32]*delivery
	excused   excused  // delivery-ids that we settled ourselves
	trailing  trailing // not sent yet
}

// onBegin opens a session on the client's channel.
func (c *conn) onBegin(channel uint16, body []byte) {
	var b wire.Begin
	if err := b.Decode(body); err != nil {
		c.violatef(rulePerformative, "begin: %v", err)
		return
	}
	opts := &c.srv.opts
	switch {
	case channel > opts.ChannelMax:
		c.violatef(ruleChannelMax, "begin on channel %d, %d is the highest", channel, opts.ChannelMax)
		return
	case c.sessions[channel] != nil:
		c.violatef(ruleChannel, "begin on channel %d, which has a session", channel)
		return
	case b.RemoteChannel.Set:
		c.violatef(ruleChannel, "begin answers channel %d, on which nobody asked", b.RemoteChannel.Value)
		return
	case !c.symbolKeysHold("begin", b.Properties):
		return
	}
	ses := &session{
		conn: c, in: channel, most: b.HandleMax, links: map[uint32]*link{},
		nextIn: b.NextOutgoingID, outWindow: b.IncomingWindow,
		unsettledIn: map[uint32]*answered{}, unsettled: map[uint32]*delivery{},
	}
	ses.inWindow = ses.grantedWindow()
	at := place(&c.channels, ses)
	if at > int(c.peer.ChannelMax) {
		c.violatef(ruleChannelMax, "%d sessions, but the client's own channel-max is %d", at+1, c.peer.ChannelMax)
		return
	}
	ses.out = uint16(at)
	c.sessions[channel] = ses
	c.write(ses.out, &wire.Begin{
		RemoteChannel:  wire.Some(uint32(channel)),
		NextOutgoingID: ses.nextOut, IncomingWindow: ses.inWindow, OutgoingWindow: math.MaxInt32,
		HandleMax: opts.HandleMax,
	})
	ses.refuseBegin()
}

// place puts v at the lowest free index of list and returns the index.
func place[T any](list *[]*T, v *T) int {
	for i, taken := range *list {
		if taken == nil {
			(*list)[i] = v
			return i
		}
	}
	*list = append(*list, v)
	return len(*list) - 1
}

// onEnd frees the channel, and answers the client's END unless it is an answer.
func (ses *session) onEnd() {
	c := ses.conn
	delete(c.sessions, ses.in)
	if !ses.ended && c.srv.ignores(ses.subject(), faultIgnoreEnd) {
		ses.flush()
		ses.release()
		ses.ended = true
		return // the channel on our side stays taken
	}
	if !ses.ended {
		ses.end(nil)
	}
	c.channels[ses.out] = nil
}

// end sends our END. Until the client's own whatever it sends is dropped.
// Spec: 2.5.5.
func (ses *session) end(e *wire.Error) {
	ses.flush()
	ses.release()
	ses.ended = true
	ses.conn.write(ses.out, &wire.End{Error: e})
}

// release gives back what the session's links hold.
func (ses *session) release() {
	ses.releasing = true
	for _, l := range inOrder(ses.links) {
		l.release()
		l.partial = nil
	}
	for _, d := range inOrder(ses.unsettled) { // of suspended links
		if !d.link.browses {
			d.link.queue.lost(d.message, false)
		}
	}
	clear(ses.unsettled)
	clear(ses.unsettledIn)
}

// inOrder visits m by ascending key, so that what happens to many at once
// happens in the same order each time. What is deleted meanwhile is left out.
func inOrder[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if v, there := m[k]; there && !yield(k, v) {
				return
			}
		}
	}
}

// owe makes unlock flush the session.
func (ses *session) owe() {
	if !ses.owing {
		ses.owing = true
		ses.conn.srv.owing = append(ses.conn.srv.owing, ses)
	}
}

// flush sends the answers and flows that are owed.
func (ses *session) flush() {
	ses.answers.flush(ses)
	for _, l := range ses.creditors {
		if l.owesCredit {
			l.owesCredit = false
			l.credit = l.grantedCredit()
			ses.writeFlow(l, false)
		}
	}
	ses.creditors = ses.creditors[:0]
	if ses.owesFlow {
		ses.writeFlow(nil, false)
	}
}

// writeFlow sends the session's state, with l's unless that is nil. Each one
// opens the window again.
func (ses *session) writeFlow(l *link, drain bool) {
	ses.inWindow = ses.grantedWindow()
	ses.owesFlow = false
	f := wire.Flow{
		NextIncomingID: wire.Some(ses.nextIn), IncomingWindow: ses.inWindow,
		NextOutgoingID: ses.nextOut, OutgoingWindow: math.MaxInt32,
	}
	if l != nil {
		f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(l.out), wire.Some(l.count), wire.Some(l.credit)
		f.Drain = drain
		if l.role == wire.RoleSender {
			f.Available = wire.Some(uint32(min(l.queue.len(), math.MaxInt32)))
		}
	}
	ses.conn.write(ses.out, &f)
}

// onFlow takes the client's view of the session, and of a link if it names
// one. Spec: 2.5.6, 2.6.7.
func (ses *session) onFlow(f *wire.Flow) {
	if !ses.flowHolds(f) {
		return
	}
	c := ses.conn
	next := f.NextIncomingID.Value // absent: our first transfer-id, 0
	shut := ses.outWindow == 0
	ses.outWindow = remaining(f.IncomingWindow, ses.nextOut-next)
	if shut && ses.outWindow > 0 {
		ses.resume()
	}
	if !f.Handle.Set {
		if f.Echo && c.srv.dialect.echoes {
			ses.writeFlow(nil, false)
		}
		return
	}
	l := ses.links[f.Handle.Value]
	if l == nil {
		c.violatef(ruleHandle, "flow on handle %d, which is not attached", f.Handle.Value)
		return
	}
	if !l.detached && l.node != nil {
		l.onFlow(f)
	}
}

// remaining is granted less used, zero if that is negative.
func remaining(granted, used uint32) uint32 {
	if used >= granted {
		return 0
	}
	return granted - used
}

// after compares serial numbers. Spec: 2.8.10, RFC 1982.
func after(a, b uint32) bool { return int32(a-b) > 0 }

// resume lets deliveries go on that waited for the window or for room.
func (ses *session) resume() {
	for _, l := range inOrder(ses.links) {
		if l.role == wire.RoleSender && l.queue != nil && !l.detached {
			l.proceed()
			l.queue.touch()
		}
	}
}
