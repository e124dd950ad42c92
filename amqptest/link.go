package amqptest

import (
	"math"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// linkCredit is what a sending client is granted in the generic dialect.
const linkCredit = 256

// link is one link of a session, guarded by the server's mutex. Spec: 2.6.
type link struct {
	ses      *session
	name     string
	role     wire.Role // ours
	in       uint32    // the client's handle
	out      uint32    // ours
	address  string    // of its node on the wire
	node     *node     // nil if the attach was refused
	withheld bool      // a fault withholds its credit
	lifted   bool      // and has just let go of it
	detached bool      // our DETACH is out, the client's is awaited
	released bool      // it is off its node
	second   bool      // rcv-settle-mode second
	sndMode  uint8

	count  uint32 // delivery-count
	credit uint32

	// Role sender: to a consumer.
	source         *wire.Source // as it was answered
	queue          *queue
	browses        bool          // takes nothing
	next           uint64        // where it looks next, if it only looks
	largest        uint64        // max-message-size, 0 for none
	drain          bool          // the client wants its credit back
	outcomes       []wire.Symbol // that the client may choose, nil for all
	defaultOutcome *wire.State   // of what the client settles without one
	heard          bool          // the client has told us a delivery-count
	heardCount     uint32        // the last one
	current        *delivery     // its last frame is still to be sent

	// Role receiver: from a publisher.
	target     *wire.Target // as it was answered
	partial    *incoming    // its last frame is still to come
	owesCredit bool
	unsettled  wire.Map // by delivery-tag: what the client may resume
	incomplete bool     // and it may resume more than that; as a consumer it takes nothing new
	tags       tags     // of its deliveries that are unsettled
}

const (
	sndUnsettled uint8 = 0
	sndSettled   uint8 = 1
	rcvSecond    uint8 = 1
)

// onAttach attaches a link, or refuses it: an answer without terminus, and a
// closing DETACH with the reason. Spec: 2.6.3.
func (ses *session) onAttach(a *wire.Attach) {
	c := ses.conn
	switch {
	case a.Handle > c.srv.opts.HandleMax:
		e := c.violated(ruleHandleMax, "attach on handle %d, %d is the highest", a.Handle, c.srv.opts.HandleMax)
		if c.srv.dialect.endsSession {
			ses.end(e)
		} else {
			c.shut(e)
		}
		return
	case ses.links[a.Handle] != nil:
		c.violatef(ruleHandleInUse, "attach on handle %d, which is attached", a.Handle)
		return
	case a.Role == wire.RoleSender && !a.InitialDeliveryCount.Set:
		c.violatef(ruleAttach, "a sender's attach without initial-delivery-count")
		return
	case !ses.attachHolds(a):
		return
	}
	l := &link{
		ses: ses, name: a.Name, role: !a.Role, in: a.Handle,
		second: a.RcvSettleMode == rcvSecond && c.srv.dialect.second, sndMode: a.SndSettleMode,
		unsettled: a.Unsettled, incomplete: a.IncompleteUnsettled,
	}
	l.out = uint32(place(&ses.handles, l))
	if l.out > ses.most {
		c.violatef(ruleHandleMax, "%d links, but the client's own handle-max is %d", l.out+1, ses.most)
		return
	}
	ses.links[a.Handle] = l
	if l.refuseAttach(a) {
		return
	}
	refusal, done := c.srv.dialect.attach(l, a)
	if done {
		return
	}
	if refusal == nil {
		refusal = l.resolve(a)
	}
	c.srv.log.Debug("attach", "peer", c.name, "link", a.Name, "address", l.address, "error", wireError(refusal))
	if refusal != nil {
		l.refuse(a, refusal)
		return
	}
	l.accept(a)
}

// accept answers the attach and opens the link.
func (l *link) accept(a *wire.Attach) {
	reply := l.reply(a)
	if a.Source != nil {
		l.outcomes, l.defaultOutcome = a.Source.Outcomes, a.Source.DefaultOutcome
	}
	if l.role == wire.RoleSender {
		l.largest = a.MaxMessageSize
		reply.Source, reply.Target = l.source, a.Target
		reply.InitialDeliveryCount = wire.Some(0)
	} else {
		reply.Source, reply.Target = a.Source, l.target
		reply.MaxMessageSize = l.ses.conn.srv.dialect.maxMessageSize
	}
	l.steal()
	reply.Unsettled = l.resume(a)
	l.ses.conn.write(l.ses.out, reply)
	if l.role == wire.RoleSender {
		l.queue.touch()
		return
	}
	l.count = a.InitialDeliveryCount.Value
	l.oweCredit()
}

// oweCredit makes the next flush grant all that a publisher is to have.
func (l *link) oweCredit() {
	if !l.owesCredit {
		l.owesCredit = true
		l.ses.creditors = append(l.ses.creditors, l)
		l.ses.owe()
	}
}

func (l *link) reply(a *wire.Attach) *wire.Attach {
	r := &wire.Attach{Name: a.Name, Handle: l.out, Role: l.role, SndSettleMode: l.sndMode}
	if l.second {
		r.RcvSettleMode = rcvSecond
	}
	return r
}

func (l *link) refuse(a *wire.Attach, e *wire.Error) {
	l.replyRefused(a)
	l.detach(e)
}

// replyRefused answers an attach that is refused: there is no terminus.
func (l *link) replyRefused(a *wire.Attach) {
	reply := l.reply(a)
	if l.role == wire.RoleSender {
		reply.Target = a.Target
		reply.InitialDeliveryCount = wire.Some(0)
	} else {
		reply.Source = a.Source
	}
	l.ses.conn.write(l.ses.out, reply)
}

// detach closes the link from our side; what the client still sends on it
// until its own DETACH is counted and dropped.
func (l *link) detach(e *wire.Error) { l.detachAs(e, true) }

// detachAs is detach, which closes the link or only suspends it.
func (l *link) detachAs(e *wire.Error, closed bool) {
	l.ses.flush()
	l.ses.conn.write(l.ses.out, &wire.Detach{Handle: l.out, Closed: closed, Error: e})
	l.release()
	l.detached = true
}

// onDetach takes the client's DETACH and answers it unless it is an answer.
func (ses *session) onDetach(d *wire.Detach) {
	l := ses.links[d.Handle]
	if l == nil {
		ses.conn.violatef(ruleHandle, "detach of handle %d, which is not attached", d.Handle)
		return
	}
	if !ses.conn.fieldsHold("detach", d.Error) {
		return
	}
	ses.flush()
	if l.detached || d.Closed || d.Error != nil || !ses.conn.srv.dialect.suspends {
		l.release()
	} else {
		l.suspend()
	}
	delete(ses.links, d.Handle)
	if !l.detached && l.node != nil && ses.conn.srv.ignores(l.subject(), faultIgnoreDetach) {
		return // its handle on our side stays taken
	}
	ses.handles[l.out] = nil
	if !l.detached {
		ses.conn.write(ses.out, &wire.Detach{Handle: l.out, Closed: d.Closed})
	}
}

// release takes the link off its node and gives back what it holds. A
// delivery that is half received stays: the client may send the rest of it
// before it hears of our DETACH.
func (l *link) release() {
	if l.node == nil || l.released {
		return
	}
	if l.role == wire.RoleSender {
		l.giveBack()
	} else {
		l.forgetAnswered()
	}
	l.leave()
}

// leave takes the link off its node.
func (l *link) leave() {
	l.released = true
	l.current, l.owesCredit = nil, false
	l.forgetName()
	l.node.leave(l)
}

// forgetAnswered lets go of what the publisher has not settled.
func (l *link) forgetAnswered() {
	for id, in := range l.ses.unsettledIn {
		if in.link == l {
			delete(l.ses.unsettledIn, id)
			l.ses.over.add(id)
		}
	}
}

// giveBack returns what the consumer has not settled.
func (l *link) giveBack() {
	for id, d := range inOrder(l.ses.unsettled) {
		if d.link != l {
			continue
		}
		delete(l.ses.unsettled, id)
		l.ses.excused.add(id)
		if !l.browses {
			l.queue.lost(d.message, !l.ses.releasing)
		}
	}
}

// onFlow takes the client's view of the link.
func (l *link) onFlow(f *wire.Flow) {
	if !l.flowHolds(f) {
		return
	}
	count := f.DeliveryCount.Value // absent: our initial one, before the client has seen our ATTACH
	if l.role == wire.RoleReceiver {
		if f.Echo && !l.ses.conn.srv.dialect.muteLinks {
			l.oweCredit()
		}
		return
	}
	if f.LinkCredit.Set {
		l.credit = min(remaining(f.LinkCredit.Value, l.count-count), math.MaxInt32)
		l.drain = f.Drain && (l.drain || !l.ses.conn.srv.ignores(l.subject(), faultIgnoreDrain))
		l.queue.touch()
	}
	if f.Echo && !l.drain && !l.ses.conn.srv.dialect.muteLinks {
		l.ses.writeFlow(l, false)
	}
}
