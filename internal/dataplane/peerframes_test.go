package dataplane

import (
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// frame works off one frame of the client.
func (p *peer) frame(channel uint16, body []byte) {
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		p.bug("the client wrote %x: %v", body, err)
		return
	}
	p.mu.Lock()
	var reply []func()
	s := p.sessions[channel]
	switch code {
	case wire.CodeOpen:
		var o wire.Open
		p.decode(o.Decode(body))
		p.note(&o, "open")
		reply = append(reply, func() { p.send(0, &p.opt.open) })
	case wire.CodeBegin:
		reply = p.begin(channel, body)
	case wire.CodeClose:
		var c wire.Close
		p.decode(c.Decode(body))
		p.note(&c, "close")
		p.closed = true
		reply = append(reply, func() { p.send(0, &wire.Close{}) })
	default:
		if s == nil {
			p.bug("performative 0x%x on channel %d, where no session is", code, channel)
			break
		}
		reply = s.frame(code, body)
	}
	p.wakeLocked()
	muted := p.opt.mute[code]
	p.mu.Unlock()
	for _, f := range reply {
		if !muted {
			f()
		}
	}
}

func (p *peer) decode(err error) {
	if err != nil {
		p.bug("%v", err)
	}
}

func (p *peer) begin(channel uint16, body []byte) []func() {
	var b wire.Begin
	p.decode(b.Decode(body))
	p.note(&b, "begin %d", channel)
	if p.sessions[channel] != nil {
		p.bug("begin on channel %d, whose session has not ended", channel)
	}
	mine := p.opt.begin
	mine.RemoteChannel = wire.Some(uint32(channel))
	s := &peerSession{
		p: p, channel: channel, mine: channel + p.opt.channel,
		nextIncoming: b.NextOutgoingID, windowEnd: b.NextOutgoingID + mine.IncomingWindow,
		firstDelivery: true, nextOutgoing: mine.NextOutgoingID, nextMine: p.opt.delivery,
		links:       make(map[uint32]*peerLink),
		outstanding: make(map[uint32]*peerLink),
		settled:     make(map[uint32]wire.State),
		unsettledIn: make(map[uint32]bool),
	}
	p.sessions[channel] = s
	return []func(){func() { p.send(s.mine, &mine) }}
}

func (s *peerSession) frame(code uint64, body []byte) []func() {
	p := s.p
	switch code {
	case wire.CodeAttach:
		return s.attach(body)
	case wire.CodeFlow:
		s.flowIn(body)
	case wire.CodeTransfer:
		return s.transferIn(body)
	case wire.CodeDisposition:
		s.dispositionIn(body)
	case wire.CodeDetach:
		var d wire.Detach
		p.decode(d.Decode(body))
		p.note(&d, "detach %d", d.Handle)
		l := s.links[d.Handle]
		if l == nil {
			p.bug("detach of handle %d, which is not attached", d.Handle)
			return nil
		}
		delete(s.links, d.Handle)
		for id, o := range s.outstanding {
			if o == l {
				delete(s.outstanding, id)
			}
		}
		if l.detached {
			return nil
		}
		return []func(){func() { p.send(s.mine, &wire.Detach{Handle: l.mine, Closed: d.Closed}) }}
	case wire.CodeEnd:
		var e wire.End
		p.decode(e.Decode(body))
		p.note(&e, "end %d", s.channel)
		delete(p.sessions, s.channel)
		if s.ended {
			return nil
		}
		return []func(){func() { p.send(s.mine, &wire.End{}) }}
	default:
		p.bug("performative 0x%x", code)
	}
	return nil
}

func (s *peerSession) attach(body []byte) []func() {
	p := s.p
	var a wire.Attach
	p.decode(a.Decode(body))
	p.note(&a, "attach %s %s %d", a.Role, a.Name, a.Handle)
	if s.links[a.Handle] != nil {
		p.bug("attach with handle %d, which is in use", a.Handle)
	}
	l := &peerLink{
		s: s, name: a.Name, handle: a.Handle, mine: a.Handle + p.opt.handle,
		sender: a.Role == wire.RoleSender, attach: a, count: p.opt.sent,
	}
	reply := wire.Attach{
		Name: a.Name, Handle: l.mine, Role: !a.Role, SndSettleMode: a.SndSettleMode,
		RcvSettleMode: a.RcvSettleMode, Source: a.Source, Target: a.Target,
		MaxMessageSize: p.opt.maxMessage,
	}
	if l.sender {
		l.count = a.InitialDeliveryCount.Value
		if !a.InitialDeliveryCount.Set {
			p.bug("attach of a sender without initial-delivery-count")
		}
	} else {
		reply.InitialDeliveryCount = wire.Some(p.opt.sent)
	}
	l.creditEnd = l.count
	s.links[a.Handle] = l
	condition := p.opt.refuse[a.Name]
	if condition == "" {
		return []func(){func() { p.send(s.mine, &reply) }}
	}
	if l.sender {
		reply.Target = nil
	} else {
		reply.Source = nil
	}
	return []func(){
		func() { p.send(s.mine, &reply) },
		func() { l.detach(true, &wire.Error{Condition: wire.Symbol(condition)}) },
	}
}

// detach detaches l by the peer's will.
func (l *peerLink) detach(closed bool, err *wire.Error) {
	l.s.p.locked(func() { l.detached = true })
	l.s.p.send(l.s.mine, &wire.Detach{Handle: l.mine, Closed: closed, Error: err})
}

// end ends s by the peer's will.
func (s *peerSession) end(err *wire.Error) {
	s.p.locked(func() { s.ended = true })
	s.p.send(s.mine, &wire.End{Error: err})
}

func (s *peerSession) flowIn(body []byte) {
	p := s.p
	f := new(wire.Flow)
	p.decode(f.Decode(slices.Clone(body)))
	switch {
	case !f.NextIncomingID.Set || int32(s.nextOutgoing-f.NextIncomingID.Value) < 0:
		p.bug("next-incoming-id %v, we sent up to %d", f.NextIncomingID, s.nextOutgoing)
	case f.IncomingWindow != maxStep:
		p.bug("incoming-window %d", f.IncomingWindow)
	case f.NextOutgoingID != s.nextIncoming:
		p.bug("next-outgoing-id %d, the client sent up to %d", f.NextOutgoingID, s.nextIncoming)
	}
	if !f.Handle.Set {
		p.note(f, "flow")
		return
	}
	l := s.links[f.Handle.Value]
	if l == nil {
		p.bug("flow on handle %d, which is not attached", f.Handle.Value)
		return
	}
	p.note(f, "flow %s count=%d credit=%d drain=%t", l.name, f.DeliveryCount.Value, f.LinkCredit.Value, f.Drain)
	if !f.DeliveryCount.Set || !f.LinkCredit.Set {
		p.bug("flow of a link without delivery-count or link-credit")
		return
	}
	if l.sender {
		return
	}
	if int32(l.count-f.DeliveryCount.Value) < 0 {
		p.bug("delivery-count %d, we are at %d", f.DeliveryCount.Value, l.count)
	}
	l.creditEnd = f.DeliveryCount.Value + f.LinkCredit.Value
	held := 0
	for _, o := range s.outstanding {
		if o == l {
			held++
		}
	}
	if out := int(int32(l.creditEnd-l.count)) + held; l.window > 0 && out > l.window {
		p.bug("credit and unsettled deliveries are %d, the window is %d", out, l.window)
	}
}
