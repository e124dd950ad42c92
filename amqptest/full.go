package amqptest

import (
	"math"
	"slices"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// room is how many more messages may wait in n before it is full.
func (n *node) room() int {
	if n.settings.maxLength == 0 {
		return math.MaxInt32
	}
	return max(n.settings.maxLength-n.len(), 0)
}

// admit is what a publisher is answered whose message comes to n: accepted,
// where there is room or room was made.
func (n *node) admit() wire.State {
	if n.room() > 0 {
		return stateAccepted
	}
	switch n.settings.whenFull {
	case RejectWhenFull:
		return n.srv.dialect.full(n)
	case DropOldestWhenFull:
		if q := n.queues[0]; q.len() > 0 {
			n.bury(q.take(q.head), diedPushed)
		}
	case WithholdWhenFull: // the publisher had credit in hand
	}
	return stateAccepted
}

func genericFull(*node) wire.State {
	return rejected(amqp.ErrCondResourceLimitExceeded, "the queue is full")
}

// grant is the credit that a publisher is to have. One that gets less than it
// could waits for quench.
func (l *link) grant() uint32 {
	n, most := l.node, l.ses.conn.srv.dialect.credit
	if n.settings.whenFull != WithholdWhenFull {
		return most
	}
	room := n.room()
	if room < int(most) && !slices.Contains(n.thirsty, l) {
		n.thirsty = append(n.thirsty, l)
	}
	return max(l.credit, min(uint32(room), most))
}

// quench grants credit to the publishers that wait for room.
func (n *node) quench() {
	if len(n.thirsty) == 0 || n.room() == 0 {
		return
	}
	waiting := n.thirsty
	n.thirsty = nil
	for _, l := range waiting {
		if !l.released {
			l.oweCredit()
		}
	}
}
