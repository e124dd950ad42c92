package amqptest

import (
	"fmt"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// aim says which connections, sessions and links a fault happens to. A zero
// field means any.
type aim struct {
	conn      int // 1 is the first that the server was asked for
	container string
	session   wire.OptUint32
	link      string
	node      string // set by activate
}

// OnConnection aims f at the n-th connection that a client has asked for,
// counting from 1 and counting those that were refused.
func (f Fault) OnConnection(n int) Fault {
	f.aim.conn = n
	if n < 1 {
		f.problem = fmt.Sprintf("connection %d: the first one is 1", n)
	}
	return f
}

// OnContainer aims f at the connections whose OPEN has that container-id.
func (f Fault) OnContainer(id string) Fault {
	f.aim.container = id
	if id == "" {
		f.problem = "an empty container-id"
	}
	return f
}

// OnSession aims f at the sessions that the client has on that channel: go-amqp
// takes the lowest that is free, from 0.
func (f Fault) OnSession(channel uint16) Fault {
	f.aim.session = wire.Some(uint32(channel))
	return f
}

// OnLink aims f at the links of that name.
func (f Fault) OnLink(name string) Fault {
	f.aim.link = name
	if name == "" {
		f.problem = "an empty link name"
	}
	return f
}

// OnAddress aims f at the links of addr, in either direction.
func (f Fault) OnAddress(addr amqpflow.Address) Fault {
	if f.addr != "" && f.addr != addr {
		f.problem = fmt.Sprintf("address %q beside %q", addr, f.addr)
	}
	f.addr = addr
	if addr == "" {
		f.problem = "an empty address"
	}
	return f
}

// depth is how much must be known of a subject for an aim to be decided.
type depth uint8

const (
	depthConnection depth = iota
	depthContainer
	depthSession
	depthLink
)

func (a *aim) depth() depth {
	switch {
	case a.link != "" || a.node != "":
		return depthLink
	case a.session.Set:
		return depthSession
	case a.container != "":
		return depthContainer
	default:
		return depthConnection
	}
}

// subject is what a client does something on.
type subject struct {
	conn *conn
	ses  *session
	link string
	node string
}

func (l *link) subject() subject {
	return subject{conn: l.ses.conn, ses: l.ses, link: l.name, node: l.address}
}

func (ses *session) subject() subject { return subject{conn: ses.conn, ses: ses} }

func (a *aim) hits(on subject) bool {
	return a.hitsConn(on.conn) &&
		(!a.session.Set || on.ses != nil && uint32(on.ses.in) == a.session.Value) &&
		(a.link == "" || a.link == on.link) &&
		(a.node == "" || a.node == on.node)
}

func (a *aim) hitsConn(c *conn) bool {
	return (a.conn == 0 || uint64(a.conn) == c.number+1) && (a.container == "" || a.container == c.peer.ContainerID)
}

// sessionsOf are the sessions of c that a hits, by our channel.
func (a *aim) sessionsOf(c *conn) []*session {
	var hit []*session
	if !a.hitsConn(c) {
		return nil
	}
	for _, ses := range c.channels {
		if ses == nil || ses.ended || a.session.Set && uint32(ses.in) != a.session.Value {
			continue
		}
		if a.depth() < depthLink || len(a.linksOf(ses)) > 0 {
			hit = append(hit, ses)
		}
	}
	return hit
}

// linksOf are the attached links of ses that a hits, by our handle.
func (a *aim) linksOf(ses *session) []*link {
	var hit []*link
	for _, l := range ses.handles {
		if l != nil && l.attached() && a.hits(l.subject()) {
			hit = append(hit, l)
		}
	}
	return hit
}

// linksOn are the attached links of c that a hits.
func (a *aim) linksOn(c *conn) []*link {
	var hit []*link
	for _, ses := range a.sessionsOf(c) {
		hit = append(hit, a.linksOf(ses)...)
	}
	return hit
}

// on says whether c is among the connections that a hits.
func (a *aim) on(c *conn) bool {
	if a.depth() < depthSession {
		return a.hitsConn(c)
	}
	return len(a.sessionsOf(c)) > 0
}

// hitsFrame says whether a frame of c, or a protocol header, belongs to what a
// hits. A link's frames are those after its first.
func (a *aim) hitsFrame(c *conn, sent bool, frame []byte) bool {
	if a.depth() < depthSession {
		return a.hitsConn(c)
	}
	h, err := wire.ParseFrameHeader(frame)
	if err != nil || h.Type != wire.TypeAMQP {
		return false
	}
	ses := c.sessions[h.Channel]
	if sent {
		ses = nil
		if int(h.Channel) < len(c.channels) {
			ses = c.channels[h.Channel]
		}
	}
	on := subject{conn: c, ses: ses}
	if ses != nil && a.depth() == depthLink {
		if l := ses.linkOf(sent, frame[int(h.DOff)*4:]); l != nil {
			on = l.subject()
		}
	}
	return a.hits(on)
}

// linkOf is the link that a frame of the session is for; nil if there is none.
func (ses *session) linkOf(sent bool, body []byte) *link {
	handle, ok := handleOf(body)
	if !ok {
		return nil
	}
	if !sent {
		return ses.links[handle]
	}
	if uint64(handle) < uint64(len(ses.handles)) {
		return ses.handles[handle]
	}
	return nil
}

// handleOf is the handle in an attach, flow, transfer or detach.
func handleOf(body []byte) (uint32, bool) {
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return 0, false
	}
	switch code {
	case wire.CodeAttach:
		var a wire.Attach
		err = a.Decode(body)
		return a.Handle, err == nil
	case wire.CodeFlow:
		var f wire.Flow
		err = f.Decode(body)
		return f.Handle.Value, err == nil && f.Handle.Set
	case wire.CodeTransfer:
		var t wire.Transfer
		err = t.Decode(body)
		return t.Handle, err == nil
	case wire.CodeDetach:
		var d wire.Detach
		err = d.Decode(body)
		return d.Handle, err == nil
	default:
		return 0, false
	}
}

// attached says whether neither side has detached the link.
func (l *link) attached() bool {
	return l.node != nil && !l.detached && !l.ses.ended && l.ses.links[l.in] == l
}
