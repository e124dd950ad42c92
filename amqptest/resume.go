package amqptest

import (
	"encoding/binary"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// linkName is what identifies a link among all of the server's: a container
// may have one of a name in each direction. Spec: 2.6.1.
type linkName struct {
	container, name string
	role            wire.Role // ours
}

// steal closes the link of l's name that is attached already, wherever that
// is, and makes l the one that has the name. Spec: 2.6.1.
func (l *link) steal() {
	s := l.ses.conn.srv
	if !s.dialect.steals {
		return
	}
	name := linkName{l.ses.conn.peer.ContainerID, l.name, l.role}
	if other := s.attached[name]; other != nil && !other.released {
		other.detach(refusal(amqp.ErrCondStolen, "the link was attached again"))
	}
	s.attached[name] = l
}

// forgetName makes l's name free.
func (l *link) forgetName() {
	name := linkName{l.ses.conn.peer.ContainerID, l.name, l.role}
	if attached := l.ses.conn.srv.attached; attached[name] == l {
		delete(attached, name)
	}
}

// suspend takes the link off its node after a DETACH that neither closes it
// nor has an error. Its deliveries stay unsettled until the link is resumed in
// the same session, which says what the client knows of them, or the session
// ends. Spec: 2.6.4, 2.7.6.
func (l *link) suspend() {
	if l.node != nil && !l.released {
		l.leave()
	}
}

// resume ends what is left of a suspended link of the same name, whose place l
// takes, and returns the deliveries of the client's that are unsettled here.
// Of a consumer's deliveries those that its attach gives an outcome have it,
// and all others come back: a message is delivered anew, never resumed, and
// the answer has no unsettled map, which tells the client to forget them.
// Spec: 2.6.13.
func (l *link) resume(a *wire.Attach) wire.Map {
	if l.role == wire.RoleReceiver {
		return l.inherit()
	}
	for id, d := range inOrder(l.ses.unsettled) {
		if !d.link.released || d.link.name != l.name {
			continue
		}
		delete(l.ses.unsettled, id)
		l.ses.excused.add(id)
		state := outcomeIn(a.Unsettled, id)
		switch {
		case state.Terminal():
			d.link.queue.settle(d, &state)
		case !d.link.browses:
			d.link.queue.giveBack(d.message)
		}
	}
	return nil
}

// outcomeIn is the state of delivery id of ours in a client's unsettled map.
// The fields of rejected and modified are not looked at.
func outcomeIn(unsettled wire.Map, id uint32) wire.State {
	for _, e := range unsettled {
		tag, _ := e.Key.([]byte)
		if len(tag) != 4 || binary.BigEndian.Uint32(tag) != id {
			continue
		}
		state, _ := e.Value.(wire.Described)
		switch state.Descriptor {
		case wire.CodeAccepted, outcomeSymbol(wire.StateAccepted):
			return wire.State{Kind: wire.StateAccepted}
		case wire.CodeRejected, outcomeSymbol(wire.StateRejected):
			return wire.State{Kind: wire.StateRejected}
		case wire.CodeReleased, outcomeSymbol(wire.StateReleased):
			return wire.State{Kind: wire.StateReleased}
		case wire.CodeModified, outcomeSymbol(wire.StateModified):
			return wire.State{Kind: wire.StateModified}
		}
	}
	return wire.State{}
}

// inherit makes l's own what the client has still to settle, and returns it by
// delivery-tag: each was stored, or refused for good.
func (l *link) inherit() wire.Map {
	var unsettled wire.Map
	for _, in := range l.ses.unsettledIn {
		if in.link.released && in.link.name == l.name {
			in.link = l
			l.tags.add(in.tag)
			unsettled = append(unsettled, wire.Entry{
				Key: in.tag.b[:in.tag.n], Value: wire.Described{Descriptor: wire.CodeAccepted, Value: wire.List{}},
			})
		}
	}
	return unsettled
}

// settleResumed takes the resumed delivery of tag, by which the client settles
// what it has been answered before. Any other is ignored. Spec: 2.7.5.
func (l *link) settleResumed(p *incoming) {
	for id, in := range l.ses.unsettledIn {
		if in.link == l && in.tag == p.tag && p.settled {
			delete(l.tags, in.tag)
			delete(l.ses.unsettledIn, id)
		}
	}
}
