package amqptest

import (
	"context"
	"log/slog"
	"slices"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// answers gathers the accepted deliveries of publishers into ranges.
type answers struct {
	first, next uint32
	any, second bool
}

// answered is a delivery of a publisher whose outcome has been decided.
type answered struct {
	link *link
	tag  tag
}

// answer tells the publisher the outcome of its delivery. In the second mode
// the publisher settles it after that.
func (ses *session) answer(id uint32, state *wire.State, second bool) {
	a := &ses.answers
	if state.Kind == wire.StateAccepted && a.any && a.next == id && a.second == second {
		a.next++
		return
	}
	a.flush(ses)
	*a = answers{first: id, next: id + 1, any: true, second: second}
	ses.owe()
	if state.Kind != wire.StateAccepted {
		a.send(ses, *state)
	}
}

func (a *answers) flush(ses *session) {
	if a.any {
		a.send(ses, wire.State{Kind: wire.StateAccepted})
	}
}

func (a *answers) send(ses *session, state wire.State) {
	a.any = false
	ses.forgetTags()
	ses.conn.write(ses.out, &wire.Disposition{
		Role: wire.RoleReceiver, First: a.first, Last: a.next - 1, Settled: !a.second, State: state,
	})
}

// onDisposition takes what the client says of deliveries in either direction.
// Spec: 2.7.6.
func (ses *session) onDisposition(d *wire.Disposition) {
	c := ses.conn
	from, to := uint32(0), ses.outgoing // ours, if the client is their receiver
	if d.Role == wire.RoleSender {
		from, to = ses.firstIn, ses.incoming
	}
	count := to - from // deliveries that exist
	if after(d.First, d.Last) || d.First-from >= count || d.Last-from >= count {
		c.violatef(ruleDisposition, "deliveries %d to %d, of which not all exist", d.First, d.Last)
		return
	}
	if !ses.dispositionHolds(d) {
		return
	}
	defer ses.trailing.flush(ses)
	for id := d.First; ; id++ {
		if d.Role == wire.RoleSender {
			if d.Settled && !ses.forget(id) {
				return
			}
		} else if !ses.settle(id, d) {
			return
		}
		if id == d.Last {
			return
		}
	}
}

// trailing gathers what we settle after the consumer into ranges of one state.
type trailing struct {
	first, next uint32
	any         bool
	state       wire.State
}

func (e *trailing) add(ses *session, id uint32, state *wire.State) {
	if e.any && e.next == id && e.state.Kind == state.Kind { // both from one disposition, or a source's default
		e.next++
		return
	}
	e.flush(ses)
	*e = trailing{first: id, next: id + 1, any: true, state: *state}
}

func (e *trailing) flush(ses *session) {
	if e.any {
		e.any = false
		ses.conn.write(ses.out, &wire.Disposition{
			Role: wire.RoleSender, First: e.first, Last: e.next - 1, Settled: true, State: e.state,
		})
	}
}

// settle applies the consumer's disposition to one delivery of ours.
func (ses *session) settle(id uint32, disposition *wire.Disposition) bool {
	state := disposition.State
	if !disposition.Settled && !state.Terminal() {
		return true
	}
	d := ses.unsettled[id]
	if d != nil && !d.link.outcomeHolds(id, &state) {
		return false
	}
	if d == nil {
		if ses.excused.has(id) {
			return true
		}
		ses.conn.violatef(ruleSettledTwice, "delivery %d is settled already", id)
		return false
	}
	if ses.conn.srv.ignores(d.link.subject(), faultIgnoreDisposition) {
		return true
	}
	delete(ses.unsettled, id)
	if !state.Terminal() && !d.link.unstated(&state) {
		return false
	}
	if !disposition.Settled { // the second mode: the client learns that we settled it
		ses.excused.add(id)
		if ses.conn.srv.dialect.trails {
			ses.trailing.add(ses, id, &state)
		}
	}
	if !d.link.browses {
		d.link.queue.settle(d, &state)
	}
	return !ses.ended
}

// unstated puts in state what it means that the client settles without an
// outcome, and says whether that is allowed. Spec: 3.5.3 (default-outcome).
func (l *link) unstated(state *wire.State) bool {
	switch kind := l.ses.conn.srv.dialect.unstated; {
	case kind == wire.StateUnknown:
		l.ses.end(refusal(amqp.ErrCondInvalidField, "a settled disposition without an outcome"))
		return false
	case l.defaultOutcome != nil:
		*state = *l.defaultOutcome
	case kind != wire.StateNone:
		*state = wire.State{Kind: kind}
	}
	return true
}

// settle records the outcome of d and does with its message what that says.
func (q *queue) settle(d *delivery, state *wire.State) {
	m, n := d.message, q.node
	n.settlements = append(n.settlements, Settlement{
		MessageID: m.id(), Outcome: outcomeOf(state.Kind), Error: amqpError(state.Error), DeliveryCount: d.count,
	})
	if log := q.srv.log; log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("settled", "address", n.name, "outcome", outcomeOf(state.Kind).String(), "attempt", d.count+1)
	}
	q.conclude(d, state)
}

// conclude does with the message of d what its outcome says.
func (q *queue) conclude(d *delivery, state *wire.State) {
	m, n, dialect := d.message, q.node, q.srv.dialect
	switch state.Kind {
	case wire.StateAccepted:
	case wire.StateRejected:
		if dialect.rejectedCounts {
			m.header.DeliveryCount++
		}
		n.bury(m, diedRejected)
	case wire.StateModified:
		dialect.modified(n, m, d.link, state)
		if state.DeliveryFailed {
			m.header.DeliveryCount++
		}
		switch {
		case dialect.undeliverable && state.UndeliverableHere:
			n.bury(m, diedRejected)
		case state.DeliveryFailed && n.failed(m):
			n.bury(m, diedLimit)
		default:
			q.returned(m)
			return
		}
	default: // released, and settled without an outcome
		q.returned(m)
		return
	}
	n.expire(nil)
}

func outcomeOf(kind wire.StateKind) amqpflow.Outcome {
	switch kind {
	case wire.StateAccepted:
		return amqpflow.Accepted
	case wire.StateRejected:
		return amqpflow.Rejected
	case wire.StateReleased:
		return amqpflow.Released
	case wire.StateModified:
		return amqpflow.Modified
	default:
		return amqpflow.OutcomeNone
	}
}

// excused are the delivery-ids that we settled, as ascending runs: a
// disposition for one of them may have crossed that, and means nothing.
type excused []run

type run struct{ first, last uint32 }

func (e *excused) add(id uint32) {
	runs := *e
	i, found := e.find(id)
	switch {
	case found:
	case i > 0 && runs[i-1].last+1 == id:
		runs[i-1].last = id
	default:
		*e = slices.Insert(runs, i, run{id, id})
	}
}

func (e *excused) has(id uint32) bool {
	_, found := e.find(id)
	return found
}

func (e *excused) find(id uint32) (int, bool) {
	return slices.BinarySearchFunc(*e, id, func(r run, id uint32) int {
		switch {
		case r.last < id:
			return -1
		case r.first > id:
			return 1
		default:
			return 0
		}
	})
}
