package amqptest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// incoming is a delivery of a publisher whose last frame is still to come.
type incoming struct {
	id      uint32
	format  uint32
	tag     tag
	settled bool
	// forgotten: the client has settled it by a disposition.
	forgotten bool
	resumed   bool           // we never have it unsettled, so it is ignored
	mode      wire.OptUint32 // rcv-settle-mode of this delivery alone
	payload   []byte
}

// onTransfer takes one transfer frame. Spec: 2.7.5.
func (ses *session) onTransfer(t *wire.Transfer) {
	c := ses.conn
	if ses.inWindow == 0 {
		c.violatef(ruleSessionWindow, "a transfer beyond the incoming window (transfer-id %d)", ses.nextIn)
		return
	}
	ses.inWindow--
	ses.nextIn++
	if ses.inWindow <= c.srv.opts.Window/2 {
		ses.owesFlow = true
		ses.owe()
	}
	if l := ses.receiving(t); l != nil {
		l.assemble(t)
	}
}

// receiving returns the link that t belongs to; nil after a violation.
func (ses *session) receiving(t *wire.Transfer) *link {
	c := ses.conn
	l := ses.links[t.Handle]
	switch {
	case l == nil:
		c.violatef(ruleHandle, "transfer on handle %d, which is not attached", t.Handle)
	case l.role == wire.RoleSender:
		c.violatef(ruleDirection, "transfer on link %q, on which the client receives", l.name)
	default:
		return l
	}
	return nil
}

// assemble adds a frame to the delivery that it belongs to.
func (l *link) assemble(t *wire.Transfer) {
	p := l.partial
	if p == nil {
		p = l.begin(t)
	} else if !l.goesOn(t) {
		return
	}
	if p == nil {
		return
	}
	l.partial = p
	p.settled = p.settled || t.Settled
	if l.tooLarge(p, t) {
		return
	}
	if t.More && !t.Aborted {
		p.payload = append(p.payload, t.Payload...)
		return
	}
	l.partial = nil
	l.topUp()
	if t.Aborted || p.resumed {
		l.ses.over.add(p.id)
		if p.resumed {
			l.settleResumed(p)
		}
		return
	}
	if p.payload == nil {
		p.payload = bytes.Clone(t.Payload) // of exactly its size
	} else {
		p.payload = append(p.payload, t.Payload...)
	}
	l.complete(p)
}

// tooLarge ends the session if a message is larger than it may be.
func (l *link) tooLarge(p *incoming, t *wire.Transfer) bool {
	most := l.ses.conn.srv.dialect.maxMessageSize
	if size := uint64(len(p.payload) + len(t.Payload)); most == 0 || size <= most {
		return false
	}
	l.ses.end(refusal(amqp.ErrCondMessageSizeExceeded, fmt.Sprintf("message size > maximum of %d bytes", most)))
	return true
}

// begin checks the first frame of a delivery; nil after a violation.
func (l *link) begin(t *wire.Transfer) *incoming {
	ses, c := l.ses, l.ses.conn
	id := t.DeliveryID.Value
	switch {
	case !t.DeliveryID.Set:
		c.violatef(ruleFirstTransfer, "link %q: a first transfer without delivery-id", l.name)
	case t.DeliveryTag == nil:
		c.violatef(ruleFirstTransfer, "link %q: a first transfer without delivery-tag (delivery-id %d)", l.name, id)
	case len(t.DeliveryTag) > maxDeliveryTag:
		c.violatef(ruleDeliveryTag, "link %q: a delivery-tag of %d bytes (delivery-id %d)", l.name, len(t.DeliveryTag), id)
	case !t.Settled && !t.Resume && l.tags.has(t.DeliveryTag):
		c.violatef(ruleDeliveryTag, "link %q: delivery %d has the tag %x of an unsettled one", l.name, id, t.DeliveryTag)
	case !t.MessageFormat.Set:
		c.violatef(ruleFirstTransfer, "link %q: a first transfer without message-format (delivery-id %d)", l.name, id)
	case t.Resume && !l.mayResume(t.DeliveryTag):
		c.violatef(ruleResume, "link %q: delivery %d resumes what is not in the client's unsettled map", l.name, id)
	case ses.anyIncoming && id != ses.incoming:
		c.violatef(ruleDeliveryID, "link %q: delivery-id %d where %d is due", l.name, id, ses.incoming)
	case !t.Aborted && !ses.transferStateHolds(t):
	case l.credit == 0:
		c.violatef(ruleLinkCredit, "link %q: a delivery without credit (delivery-id %d)", l.name, id)
	default:
		if !ses.anyIncoming {
			ses.anyIncoming, ses.firstIn = true, id
		}
		ses.incoming = id + 1
		l.credit--
		l.count++
		p := &incoming{id: id, format: t.MessageFormat.Value, resumed: t.Resume, mode: t.RcvSettleMode}
		p.tag.set(t.DeliveryTag)
		return p
	}
	return nil
}

// mayResume says whether the client's ATTACH called the delivery unsettled.
func (l *link) mayResume(tag []byte) bool {
	return l.incomplete || slices.ContainsFunc(l.unsettled, func(e wire.Entry) bool {
		known, ok := e.Key.([]byte)
		return ok && bytes.Equal(known, tag)
	})
}

// goesOn checks a further frame of a delivery against its first.
func (l *link) goesOn(t *wire.Transfer) bool {
	p, c := l.partial, l.ses.conn
	switch {
	case t.DeliveryID.Set && t.DeliveryID.Value != p.id:
		c.violatef(ruleContinuation, "link %q: delivery-id %d within delivery %d", l.name, t.DeliveryID.Value, p.id)
	case t.DeliveryTag != nil && !p.tag.is(t.DeliveryTag):
		c.violatef(ruleContinuation, "link %q: another delivery-tag within delivery %d", l.name, p.id)
	case t.Resume && !p.resumed:
		c.violatef(ruleContinuation, "link %q: delivery %d is resumed after its first frame", l.name, p.id)
	case t.MessageFormat.Set && t.MessageFormat.Value != p.format:
		c.violatef(ruleContinuation, "link %q: another message-format within delivery %d", l.name, p.id)
	default:
		return true
	}
	return false
}

// topUp makes the next flush grant credit once half of it is used.
func (l *link) topUp() {
	if l.credit <= l.ses.conn.srv.dialect.credit/2 && !l.detached {
		l.oweCredit()
	}
}

// publish stores m in n, unless that is where requests go.
func (l *link) publish(n *node, m *message) wire.State {
	if n.kind == kindManagement {
		l.manage(m)
		return stateAccepted
	}
	n.arrived(m)
	return n.publish(m)
}

// complete stores a message that has come whole, and answers it.
func (l *link) complete(p *incoming) {
	ses, c := l.ses, l.ses.conn
	switch {
	case l.sndMode == sndSettled && !p.settled:
		c.violatef(ruleSettleMode, "link %q: delivery %d is unsettled, but the link's snd-settle-mode is settled", l.name, p.id)
		return
	case l.sndMode == sndUnsettled && p.settled:
		c.violatef(ruleSettleMode, "link %q: delivery %d is settled, but the link's snd-settle-mode is unsettled", l.name, p.id)
		return
	}
	second := l.second
	if p.mode.Set && !p.settled {
		if second = p.mode.Value == uint32(rcvSecond); second && !l.second {
			c.violatef(ruleSettleMode, "link %q: delivery %d asks for rcv-settle-mode second, but the link's is first", l.name, p.id)
			return
		}
	}
	m, err := newMessage(&c.sections, p.format, p.payload, c.srv.dialect)
	if err != nil {
		c.violatef(ruleMessage, "link %q: delivery %d: %v", l.name, p.id, err)
		return
	}
	if p.format == 0 {
		if r, err := messageHolds(&c.sections); err != nil {
			c.violatef(r, "link %q: delivery %d: %v", l.name, p.id, err)
			return
		}
	}
	if l.detached {
		return
	}
	if c.srv.dialect.checksUser && m.format == 0 && !c.mayBe(&c.sections) {
		l.detach(refusal(amqp.ErrCondUnauthorizedAccess, "the user-id is not that of the connection"))
		return
	}
	to, answer := l.destination(m, &c.sections)
	var fault *activeFault
	if to != nil && !p.settled && !p.forgotten {
		answer, fault = l.faultyAnswer(to.name, answer)
	}
	if to != nil && answer.Kind == wire.StateAccepted {
		answer = l.publish(to, m)
	}
	if ses.ended {
		return
	}
	switch {
	case p.settled || p.forgotten:
		ses.over.add(p.id)
	case fault != nil:
		l.answerLate(fault, p, answer, second)
	default:
		l.tell(p, &answer, second)
	}
	c.srv.countTransfer(l)
}

// tell answers a delivery that has come whole.
func (l *link) tell(p *incoming, answer *wire.State, second bool) {
	ses := l.ses
	l.tags.add(p.tag)
	a := answered{link: l, tag: p.tag}
	if second {
		ses.unsettledIn[p.id] = &a
	} else {
		ses.fresh = append(ses.fresh, a)
		ses.over.add(p.id)
	}
	ses.answer(p.id, answer, second)
}
