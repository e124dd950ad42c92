package dataplane

import (
	"bytes"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// maxTag is the longest delivery-tag there may be, in octets.
//
// Spec: 2.8.7.
const maxTag = 32

// maxIntake is how many deliveries are gathered before they are handed over.
const maxIntake = 256

// item is one delivery whose last frame has come.
type item struct {
	l       *Link
	d       Delivery
	aborted bool
	counted bool // the delivery-count knows it already
}

// intake gathers the deliveries of one session, so that its lock is taken once for
// many of them. Payloads are copied while no lock is held.
type intake struct {
	s      *Session
	frames uint32
	items  []item
}

// assembly is the delivery of one link whose last frame has not come.
type assembly struct {
	active  bool
	settled bool
	large   bool // over MaxMessage: its payload is dropped
	resumed bool // it is to be ignored: our ATTACHes never call anything unsettled
	counted bool
	id      uint32
	format  uint32
	tag     int    // octets of the tag, which stands in front of the payload
	buf     []byte // tag and payload: memory of the delivery's own
	size    int64  // octets of payload, dropped ones included
}

// transfer works off one TRANSFER.
//
// Spec: 2.6.14, 2.7.5.
func (in *intake) transfer(r *reader, channel uint16, body []byte) error {
	s, err := r.session(channel, "transfer")
	if err != nil {
		return err
	}
	if s != in.s || len(in.items) >= maxIntake {
		if err := in.handOver(r); err != nil {
			return err
		}
		in.s = s
	}
	t := &r.transfer
	if err := t.Decode(body); err != nil {
		return err
	}
	in.frames++
	l := s.peers[t.Handle]
	switch {
	case l == nil:
		return violation("transfer on handle %d, which is not attached", t.Handle)
	case l.role != wire.RoleReceiver || l.refused:
		return violation("transfer to a link that takes none")
	case l.gone.Load():
		l.assembly = assembly{}
		return nil
	}
	as := &l.assembly
	if !as.active {
		if over, err := in.start(r, l); over || err != nil {
			return err
		}
	} else if err := as.agree(t); err != nil {
		return err
	}
	as.settled = as.settled || t.Settled
	switch {
	case t.Aborted || as.resumed && !t.More:
		in.items = append(in.items, item{l: l, aborted: true, counted: as.counted})
	case t.More:
		as.add(t, l.opts.MaxMessage)
		return nil
	default:
		as.add(t, l.opts.MaxMessage)
		in.items = append(in.items, item{l: l, d: as.delivery(), counted: as.counted})
	}
	if !as.counted {
		l.seen++
	}
	*as = assembly{}
	return nil
}

// start begins a delivery. It returns true if the peer had no credit for it: then
// the link is lost.
func (in *intake) start(r *reader, l *Link) (over bool, err error) {
	t := &r.transfer
	switch {
	case !t.DeliveryID.Set:
		return false, violation("delivery without a delivery-id")
	case len(t.DeliveryTag) > maxTag:
		return false, violation("delivery-tag of %d octets", len(t.DeliveryTag))
	case ahead(l.limit.Load(), l.seen) == 0:
		if err := in.handOver(r); err != nil {
			return true, err
		}
		var a after
		l.s.mu.Lock()
		l.hint.err = errTransferLimit
		l.loseLocked(ErrTransferLimit, &a)
		l.s.mu.Unlock()
		r.after(&a)
		return true, nil
	}
	l.assembly = assembly{
		active:  true,
		resumed: t.Resume,
		id:      t.DeliveryID.Value,
		format:  t.MessageFormat.Value,
		tag:     len(t.DeliveryTag),
	}
	return false, nil
}

// errTransferLimit is the error of the DETACH that ends a link whose peer sent more
// than its credit.
var errTransferLimit = &wire.Error{
	Condition:   "amqp:link:transfer-limit-exceeded",
	Description: "more deliveries than credit",
}

// agree checks a later frame of a delivery against its first.
func (as *assembly) agree(t *wire.Transfer) error {
	switch {
	case t.DeliveryID.Set && t.DeliveryID.Value != as.id:
		return violation("delivery %d goes on as %d", as.id, t.DeliveryID.Value)
	case t.MessageFormat.Set && t.MessageFormat.Value != as.format:
		return violation("delivery %d changes its message-format", as.id)
	case t.DeliveryTag != nil && !as.large && !as.resumed && !bytes.Equal(t.DeliveryTag, as.buf[:as.tag]):
		return violation("delivery %d changes its delivery-tag", as.id)
	}
	return nil
}

// add takes over a frame's payload, and the tag with the first.
func (as *assembly) add(t *wire.Transfer, limit int64) {
	if as.resumed {
		return
	}
	as.size += int64(len(t.Payload))
	if as.large || limit > 0 && as.size > limit {
		as.large, as.buf = true, nil
		return
	}
	if as.buf == nil {
		n := as.tag + len(t.Payload)
		if t.More {
			n += len(t.Payload)
		}
		as.buf = append(make([]byte, 0, n), t.DeliveryTag...)
	}
	as.buf = append(as.buf, t.Payload...)
}

func (as *assembly) delivery() Delivery {
	d := Delivery{ID: as.id, Format: as.format, Settled: as.settled, TooLarge: as.large, Size: as.size}
	if !as.large {
		d.Tag = as.buf[:as.tag:as.tag]
		d.Payload = as.buf[as.tag:]
	}
	return d
}

// handOver gives the gathered deliveries to their links.
func (in *intake) handOver(r *reader) error {
	s := in.s
	if in.frames == 0 {
		return nil
	}
	a := &r.later
	taken := false
	s.mu.Lock()
	s.nextIncoming += in.frames
	for i := range in.items {
		it := &in.items[i]
		if it.l.err != nil {
			continue
		}
		if !it.l.takeLocked(it, a) {
			taken = true
			break
		}
		if !it.aborted {
			r.signal(it.l)
		}
	}
	s.mu.Unlock()
	r.after(a)
	in.frames = 0
	clear(in.items)
	in.items = in.items[:0]
	if taken {
		return violation("delivery-id used twice")
	}
	return nil
}
