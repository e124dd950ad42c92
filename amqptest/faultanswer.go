package amqptest

import (
	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Answer answers a message that a client publishes to addr with an outcome.
// reason goes with Rejected and may be nil; Modified says
// delivery-failed; OutcomeNone settles without a state. Unless the outcome is
// Accepted the message is dropped. After counts messages that are
// stored and accepted as ever. Messages sent settled are not counted: nothing
// answers them. Answer(addr, amqpflow.Accepted, nil).Delay(d) is a late
// disposition.
//
// Spec: 3.4.
func Answer(addr amqpflow.Address, outcome amqpflow.Outcome, reason *amqp.Error) Fault {
	return Fault{kind: faultAnswer, addr: addr, outcome: outcome, reason: reason, times: 1}
}

// DropDisposition stores a message that a client publishes to addr and never
// says so. After counts messages as for Answer.
func DropDisposition(addr amqpflow.Address) Fault {
	return Fault{kind: faultDropDisposition, addr: addr, times: 1}
}

// IgnoreDisposition loses what a consumer says of a delivery from addr: the
// server has it unsettled until the link ends, and then gives the message back.
// After counts deliveries that consumers settle.
func IgnoreDisposition(addr amqpflow.Address) Fault {
	return Fault{kind: faultIgnoreDisposition, addr: addr, times: 1}
}

// IgnoreDrain never ends a consumer's drain on a link of addr. After counts
// drains that are answered.
//
// Spec: 2.6.7.
func IgnoreDrain(addr amqpflow.Address) Fault {
	return Fault{kind: faultIgnoreDrain, addr: addr, times: 1}
}

// IgnoreDetach never answers a client's detach of a link of addr. After counts
// those that are answered.
func IgnoreDetach(addr amqpflow.Address) Fault {
	return Fault{kind: faultIgnoreDetach, addr: addr, times: 1}
}

// IgnoreEnd never answers a client's END. After counts those that are answered.
func IgnoreEnd() Fault {
	return Fault{kind: faultIgnoreEnd, times: 1}
}

// IgnoreClose never answers a client's CLOSE, nor closes the socket. After
// counts those that are answered.
func IgnoreClose() Fault {
	return Fault{kind: faultIgnoreClose, times: 1}
}

// faultyAnswer is what the next message that l brings to node is answered
// with, and how: at once if that is nil.
func (l *link) faultyAnswer(node string, otherwise wire.State) (wire.State, *activeFault) {
	on := l.subject()
	on.node = node
	f := l.ses.conn.srv.happens(on, faultAnswer, faultDropDisposition)
	if f == nil || f.kind == faultDropDisposition {
		return otherwise, f
	}
	return f.state, f
}

// answerLate answers a delivery as f says: at once, later or never.
func (l *link) answerLate(f *activeFault, p *incoming, answer wire.State, second bool) {
	ses := l.ses
	l.tags.add(p.tag)
	ses.unsettledIn[p.id] = &answered{link: l, tag: p.tag}
	if f.kind == faultDropDisposition {
		ses.conn.srv.over(f)
		return
	}
	ses.conn.srv.perform(f, func() {
		if l.attached() && ses.unsettledIn[p.id] != nil {
			delete(ses.unsettledIn, p.id)
			l.tell(p, &answer, second)
		}
	})
}
