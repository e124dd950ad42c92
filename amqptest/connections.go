package amqptest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Connection is what is known of a client whose connection is open.
type Connection struct {
	// ContainerID and Hostname are the client's own, from its OPEN.
	ContainerID, Hostname string
	// User is who has authenticated, "" for ANONYMOUS and without SASL.
	User string
	// RemoteAddr is the client's network address, "pipe" for one of Dial.
	RemoteAddr string
	// MaxFrameSize and ChannelMax are what the client takes, in bytes and as
	// a channel number.
	MaxFrameSize uint32
	ChannelMax   uint16
	// IdleTimeout is what the client announced, 0 for none: the server sends
	// something at least twice within it.
	IdleTimeout time.Duration
	// Properties are the client's.
	Properties map[string]any
	// Sessions are those that are open, by the client's channel.
	Sessions []Session
}

// Session is one session of a Connection.
type Session struct {
	// Channel is the client's.
	Channel uint16
	// Links are those that are attached, by the client's handle.
	Links []Link
}

// Link is one link of a Session.
type Link struct {
	// Name is the link's, Handle the client's number for it.
	Name   string
	Handle uint32
	// Address is the node's name on the wire.
	Address amqpflow.Address
	// Receiver says that the client receives on it.
	Receiver bool
	// Credit is how many messages may follow, in the direction of the link.
	Credit uint32
	// Unsettled is how many deliveries the client holds that it has not
	// settled. Of a link that it sends on it is how many it has still to settle
	// after the server's answer, in rcv-settle-mode second.
	Unsettled int
}

// Connections returns the clients whose connection is open, in the order in
// which they came.
func (s *Server) Connections() []Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*conn
	for c := range s.conns {
		if c.phase == phaseRunning && !c.dead {
			open = append(open, c)
		}
	}
	slices.SortFunc(open, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	r := make([]Connection, len(open))
	for i, c := range open {
		r[i] = c.describe()
	}
	return r
}

func (c *conn) describe() Connection {
	r := Connection{
		ContainerID: c.peer.ContainerID, Hostname: c.peer.Hostname, User: c.user, RemoteAddr: c.name,
		MaxFrameSize: c.peer.MaxFrameSize, ChannelMax: c.peer.ChannelMax,
		IdleTimeout: time.Duration(c.peer.IdleTimeout) * time.Millisecond,
	}
	for _, e := range c.peer.Properties {
		if r.Properties == nil {
			r.Properties = map[string]any{}
		}
		r.Properties[fmt.Sprint(e.Key)] = goValue(e.Value)
	}
	for _, ses := range c.sessions {
		if !ses.ended {
			r.Sessions = append(r.Sessions, ses.describe())
		}
	}
	slices.SortFunc(r.Sessions, func(a, b Session) int { return cmp.Compare(a.Channel, b.Channel) })
	return r
}

func (ses *session) describe() Session {
	r := Session{Channel: ses.in}
	for _, l := range ses.links {
		if !l.detached {
			r.Links = append(r.Links, l.describe())
		}
	}
	slices.SortFunc(r.Links, func(a, b Link) int { return cmp.Compare(a.Handle, b.Handle) })
	return r
}

func (l *link) describe() Link {
	r := Link{
		Name: l.name, Handle: l.in, Address: amqpflow.Address(l.address),
		Receiver: l.role == wire.RoleSender, Credit: l.credit,
	}
	for _, d := range l.ses.unsettled {
		if d.link == l {
			r.Unsettled++
		}
	}
	for _, a := range l.ses.unsettledIn {
		if a.link == l {
			r.Unsettled++
		}
	}
	return r
}

// Credit returns how many messages the consumers of addr would take at once:
// the sum of the credit of their links. 0 if addr is none of the server's.
func (s *Server) Credit(addr amqpflow.Address) int {
	sum := 0
	s.consumers(addr, func(l *link) { sum += int(l.credit) })
	return sum
}

// Unsettled returns how many deliveries of addr consumers hold that they have
// not settled. 0 if addr is none of the server's.
func (s *Server) Unsettled(addr amqpflow.Address) int {
	name, _, err := s.nameOf(addr)
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.conns {
		for _, ses := range c.sessions {
			for _, d := range ses.unsettled {
				if d.link.address == name {
					n++
				}
			}
		}
	}
	return n
}

// consumers visits the links on which clients receive from addr.
func (s *Server) consumers(addr amqpflow.Address, visit func(*link)) {
	name, _, err := s.nameOf(addr)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil {
		for _, l := range n.links {
			if l.role == wire.RoleSender {
				visit(l)
			}
		}
	}
}
