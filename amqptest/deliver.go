package amqptest

import (
	"encoding/binary"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// delivery is a message that a consumer has been given and has not settled.
type delivery struct {
	id      uint32
	link    *link
	message *message
	count   uint32 // the delivery-count that it carried
	rest    []byte // of the message's bytes after its header: not sent yet
	begun   bool
}

// ready says whether the consumer may be given a message.
func (l *link) ready() bool {
	return l.credit > 0 && l.current == nil && !l.detached && !l.incomplete && l.ses.outWindow > 0 && l.ses.conn.room()
}

// takes says whether m is within the client's max-message-size, without which
// the link ends. Spec: 2.7.3.
func (l *link) takes(m *message) bool {
	if l.largest == 0 || uint64(len(m.bytes())) <= l.largest {
		return true
	}
	l.detach(refusal(amqp.ErrCondMessageSizeExceeded, fmt.Sprintf("a message of %d bytes, %d are allowed", len(m.bytes()), l.largest)))
	return false
}

// deliver gives m to the consumer: all of it, or as much as the client's
// session window and the room in the write buffer allow.
func (l *link) deliver(m *message) {
	ses := l.ses
	d := &delivery{id: ses.outgoing, link: l, message: m, count: m.header.DeliveryCount, rest: m.rest}
	ses.outgoing++
	l.count++
	l.credit--
	l.current = d
	if l.sndMode == sndSettled {
		ses.excused.add(d.id)
	} else {
		ses.unsettled[d.id] = d
	}
	l.proceed()
	m.acquired = m.acquired || !l.browses
	l.duplicate(m)
	ses.conn.srv.countTransfer(l)
}

// proceed sends frames of the current delivery while it may.
func (l *link) proceed() {
	for l.current != nil && l.ses.outWindow > 0 && l.ses.conn.room() {
		l.sendFrame(l.current)
	}
}

// frameReserve is more than a transfer's frame header, performative and the
// message's header section take.
const frameReserve = 128

// sendFrame appends the next frame of d.
func (l *link) sendFrame(d *delivery) {
	ses, c := l.ses, l.ses.conn
	size := uint64(c.peer.MaxFrameSize)
	rest := d.rest
	whole := uint64(len(rest))+frameReserve <= size
	start := len(c.out)
	l.appendTransfer(d, !whole)
	room := int(size) - (len(c.out) - start)
	if !whole && len(rest) <= room {
		c.out = c.out[:start]
		l.appendTransfer(d, false)
		whole = true
	}
	if !whole {
		rest = rest[:room]
	}
	c.out = append(c.out, rest...)
	wire.EndFrame(c.out, start)
	c.passed(true, false, c.out[start:])
	c.touch()
	d.rest = d.rest[len(rest):]
	d.begun = true
	ses.nextOut++
	ses.outWindow--
	if whole {
		l.current = nil
	}
}

// appendTransfer appends a transfer without its payload, but for the message's
// header section, which is written anew for each delivery.
func (l *link) appendTransfer(d *delivery, more bool) {
	c := l.ses.conn
	t := &c.transfer
	*t = wire.Transfer{Handle: l.out, More: more}
	if l.sndMode == sndSettled {
		t.Settled, t.HasSettled = true, true
	}
	if !d.begun {
		binary.BigEndian.PutUint32(c.tag[:], d.id)
		t.DeliveryID, t.DeliveryTag = wire.Some(d.id), c.tag[:]
		t.MessageFormat = wire.Some(d.message.format)
	}
	c.out = wire.BeginFrame(c.out, wire.TypeAMQP, l.ses.out)
	c.out = t.Append(c.out)
	if !d.begun && d.message.format == 0 {
		h := d.message.header
		h.DeliveryCount = d.count
		dialect := l.ses.conn.srv.dialect
		h.FirstAcquirer = !d.message.acquired && dialect.firstAcquirer
		if h.HasTTL && dialect.reducesTTL {
			h.TTL = d.message.left()
		}
		c.out = h.Append(c.out)
	}
}

// finishDrain gives the client's credit back once nothing is there to use it:
// delivery-count passes what was not used. Spec: 2.6.7.
func (l *link) finishDrain() {
	if !l.drain || l.detached || l.current != nil {
		return
	}
	if l.credit > 0 && l.queue.peek(l) >= 0 {
		return // waits for the window or for room
	}
	l.count += l.credit
	l.credit = 0
	l.drain = false
	l.ses.writeFlow(l, true)
}
