package dataplane

import (
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// transferIn checks one transfer of the client against ids, window and credit.
func (s *peerSession) transferIn(body []byte) []func() {
	p := s.p
	var t wire.Transfer
	p.decode(t.Decode(body))
	if ahead(s.windowEnd, s.nextIncoming) == 0 {
		p.bug("transfer %d beyond the window", s.nextIncoming)
	}
	s.nextIncoming++
	l := s.links[t.Handle]
	if l == nil || !l.sender {
		p.bug("transfer on handle %d, which no sender has", t.Handle)
		return nil
	}
	if !l.more {
		if !t.DeliveryID.Set || t.DeliveryTag == nil || !t.MessageFormat.Set {
			p.bug("first transfer without id, tag or format")
		}
		if !s.firstDelivery && t.DeliveryID.Value != s.nextDelivery {
			p.bug("delivery-id %d, due is %d", t.DeliveryID.Value, s.nextDelivery)
		}
		s.firstDelivery, s.nextDelivery = false, t.DeliveryID.Value+1
		if ahead(l.creditEnd, l.count) == 0 {
			p.bug("delivery %d on %s without credit", t.DeliveryID.Value, l.name)
		}
		l.count++
		l.id, l.body = t.DeliveryID.Value, nil
		if !t.Settled {
			s.unsettledIn[l.id] = true
		}
	} else if t.DeliveryID.Set && t.DeliveryID.Value != l.id {
		p.bug("delivery %d goes on as %d", l.id, t.DeliveryID.Value)
	}
	if t.Aborted {
		p.bug("delivery %d is aborted", l.id)
	}
	l.body = append(l.body, t.Payload...)
	l.more = t.More
	if t.More {
		return nil
	}
	l.bodies = append(l.bodies, l.body)
	id := l.id
	if !s.autoAccept || !s.unsettledIn[id] {
		return nil
	}
	return []func(){func() { s.accept(id, id) }}
}

// dispositionIn checks that the client settles what is there to settle, once.
func (s *peerSession) dispositionIn(body []byte) {
	p := s.p
	var d wire.Disposition
	p.decode(d.Decode(body))
	s.dispositions++
	p.note(&d, "disposition %s %d-%d", d.Role, d.First, d.Last)
	if !d.Settled {
		p.bug("disposition of %d to %d that settles nothing", d.First, d.Last)
	}
	if d.Last-d.First > 1<<20 {
		p.bug("disposition of %d to %d", d.First, d.Last)
		return
	}
	if d.Role == wire.RoleSender {
		s.confirmed = append(s.confirmed, run{d.First, d.Last})
		return
	}
	for id := d.First; ; id++ {
		if s.outstanding[id] == nil {
			p.bug("disposition of delivery %d, which is not outstanding", id)
		}
		delete(s.outstanding, id)
		s.settled[id] = d.State
		if id == d.Last {
			return
		}
	}
}

// deliver sends one delivery on l, a link that the client receives on, in frames of
// at most size octets of payload (0: one frame), and returns its id.
func (l *peerLink) deliver(size int, settled bool, body []byte) uint32 {
	s := l.s
	var id uint32
	s.p.locked(func() {
		id = s.nextMine
		s.nextMine++
		l.count++
		if !settled {
			s.outstanding[id] = l
		}
	})
	t := wire.Transfer{
		Handle: l.mine, DeliveryID: wire.Some(id), MessageFormat: wire.Some(0), Settled: settled,
		DeliveryTag: []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)},
	}
	for chunk := range slices.Chunk(body, max(size, 1)) {
		if size == 0 {
			chunk = body
		}
		t.More = size > 0 && len(chunk) < len(body)
		l.send(&t, chunk)
		if body = body[len(chunk):]; !t.More {
			return id
		}
		t.DeliveryID, t.DeliveryTag, t.MessageFormat = wire.OptUint32{}, nil, wire.OptUint32{}
	}
	l.send(&t, nil)
	return id
}

// send sends one transfer as it is.
func (l *peerLink) send(t *wire.Transfer, payload []byte) {
	l.s.p.locked(func() { l.s.nextOutgoing++ })
	l.s.p.send(l.s.mine, t, payload...)
}

// accept settles the client's deliveries first to last as accepted.
func (s *peerSession) accept(first, last uint32) {
	s.settle(&wire.Disposition{
		Role: wire.RoleReceiver, First: first, Last: last, Settled: true,
		State: wire.State{Kind: wire.StateAccepted},
	})
}

// settle sends a disposition of role receiver.
func (s *peerSession) settle(d *wire.Disposition) {
	s.p.locked(func() {
		for id := d.First; d.Settled && d.Last-d.First < 1<<20 && id != d.Last+1; id++ {
			delete(s.unsettledIn, id)
		}
	})
	s.p.send(s.mine, d)
}

// flow is what a flow of the peer's session says, with a window of n transfers.
func (s *peerSession) flow(n uint32) wire.Flow {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	// A window is never taken back: transfers may be under way for it.
	if int32(s.nextIncoming+n-s.windowEnd) > 0 {
		s.windowEnd = s.nextIncoming + n
	}
	return wire.Flow{
		NextIncomingID: wire.Some(s.nextIncoming),
		IncomingWindow: s.windowEnd - s.nextIncoming,
		NextOutgoingID: s.nextOutgoing,
		OutgoingWindow: maxStep,
	}
}

// credit grants the client credit for n deliveries on l, a link it sends on.
func (l *peerLink) credit(n uint32) {
	f := l.s.flow(0)
	l.creditWith(f, n)
}

func (l *peerLink) creditWith(f wire.Flow, n uint32) {
	l.s.p.locked(func() {
		// As with the window.
		if int32(l.count+n-l.creditEnd) > 0 {
			l.creditEnd = l.count + n
		}
		f.Handle = wire.Some(l.mine)
		f.DeliveryCount = wire.Some(l.count)
		f.LinkCredit = wire.Some(l.creditEnd - l.count)
	})
	l.s.p.send(l.s.mine, &f)
}
