package amqptest

import (
	"slices"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Duplicate delivers a message of addr twice: a copy of it is given to the next
// consumer that has credit. After counts deliveries to consumers.
func Duplicate(addr amqpflow.Address) Fault {
	return Fault{kind: faultDuplicate, addr: addr, times: 1}
}

// Reorder delivers the message behind the one whose turn it is. After counts
// deliveries to consumers while another message waits.
func Reorder(addr amqpflow.Address) Fault {
	return Fault{kind: faultReorder, addr: addr, times: 1}
}

// OverSend gives each consumer of addr that has used up its credit one message
// more. It waits until there is such a consumer and a message.
func OverSend(addr amqpflow.Address) Fault {
	return Fault{kind: faultOverSend, addr: addr, times: 1}
}

// TakeBack settles what the consumers of addr have not settled yet, as released
// or modified, and gives it to the next: modified counts as a delivery that
// failed. Brokers do so to consumers that take too long:
//
//	amqptest.TakeBack("orders", amqpflow.Modified).Delay(30 * time.Minute)
//
// Without a delay it happens once to each message.
//
// Spec: 2.6.12.
func TakeBack(addr amqpflow.Address, outcome amqpflow.Outcome) Fault {
	return Fault{kind: faultTakeBack, addr: addr, outcome: outcome, times: 1}
}

// takeBack is a blow for each delivery that l has unsettled, by delivery-id.
func (l *link) takeBack(f *activeFault) []func() {
	ses := l.ses
	var blows []func()
	for id, d := range inOrder(ses.unsettled) {
		if d.link != l || l.current == d || l.browses || f.spares(d.message) {
			continue
		}
		blows = append(blows, func() {
			f.done[d.message] = struct{}{}
			delete(ses.unsettled, id)
			ses.excused.add(id)
			ses.conn.write(ses.out, &wire.Disposition{
				Role: wire.RoleSender, First: id, Last: id, Settled: true, State: f.state,
			})
			l.queue.conclude(d, &f.state)
		})
	}
	return blows
}

// overSend is a blow that delivers one message more than l has credit for.
func (l *link) overSend() []func() {
	if l.role != wire.RoleSender || l.count == 0 || l.credit > 0 || l.current != nil || l.queue.peek(l) < 0 {
		return nil
	}
	return []func(){func() {
		l.credit++
		l.queue.touch()
	}}
}

// reordered returns the index of the message that l is given where the one at
// index i is due.
func (q *queue) reordered(l *link, i int) int {
	s := q.srv
	if len(s.faults) == 0 || l.browses || i+1 >= len(q.waiting) || slices.Contains(q.waiting[i+1].refusedBy, l) {
		return i
	}
	if s.ignores(l.subject(), faultReorder) {
		return i + 1
	}
	return i
}

// duplicate puts a copy of m, which l has just been given, back into the queue
// if a fault wants that.
func (l *link) duplicate(m *message) {
	s := l.ses.conn.srv
	if len(s.faults) == 0 || m.duplicate || l.browses || !s.ignores(l.subject(), faultDuplicate) {
		return
	}
	second := *m
	second.duplicate = true
	second.refusedBy = slices.Clone(m.refusedBy)
	l.queue.giveBack(&second)
}
