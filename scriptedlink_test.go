package amqpflow_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// note keeps what the peer must know of a frame to answer and to deliver.
func (p *peer) note(f frame) {
	switch perf := f.perf.(type) {
	case *wire.Begin:
		p.sessions[f.channel] = &peerSession{}
	case *wire.Attach:
		l := &peerLink{channel: f.channel, attach: *perf}
		switch {
		case perf.Role == wire.RoleReceiver && perf.Source != nil:
			l.address = perf.Source.Address
		case perf.Role == wire.RoleSender && perf.Target != nil:
			l.address = perf.Target.Address
		}
		p.links = append(p.links, l)
	case *wire.Flow:
		if l := p.linkLocked(f.channel, perf.Handle.Value, perf.Handle.Set); l != nil && l.attach.Role == wire.RoleReceiver {
			l.limit = perf.DeliveryCount.Value + perf.LinkCredit.Value
			l.drained = perf.Drain
		}
	case *wire.Transfer:
		p.sessions[f.channel].incoming++
	}
}

// linkLocked is the latest link with this handle on this channel.
func (p *peer) linkLocked(channel uint16, handle uint32, set bool) *peerLink {
	for _, l := range slices.Backward(p.links) {
		if set && l.channel == channel && l.attach.Handle == handle {
			return l
		}
	}
	return nil
}

// link is the latest link of an address in the client's role.
func (p *peer) link(address string, role wire.Role) *peerLink {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range slices.Backward(p.links) {
		if l.address == address && l.attach.Role == role {
			return l
		}
	}
	require.Failf(p.t, "no link", "%s of %q", role, address)
	return nil
}

// answer does what a friendly server does.
func (p *peer) answer(f frame) {
	switch perf := f.perf.(type) {
	case nil:
		p.answerHeader(f.proto)
	case *wire.SASLInit:
		p.send(0, &wire.SASLOutcome{})
	case *wire.Open:
		p.send(0, &p.open)
	case *wire.Begin:
		p.send(f.channel, &wire.Begin{
			RemoteChannel: wire.Some(uint32(f.channel)), IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: 255,
		})
	case *wire.Attach:
		p.answerAttach(f.channel, perf)
	case *wire.Flow:
		p.answerDrain(f.channel, perf)
	case *wire.Transfer:
		if !perf.More && !perf.Settled {
			p.settle(f.channel, perf.DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
		}
	case *wire.Detach, *wire.End, *wire.Close:
		p.answerEnd(f)
	}
}

func (p *peer) answerEnd(f frame) {
	if !p.answers(f) {
		switch perf := f.perf.(type) {
		case *wire.Detach:
			p.send(f.channel, &wire.Detach{Handle: perf.Handle, Closed: perf.Closed})
		case *wire.End:
			p.send(f.channel, &wire.End{})
		default:
			p.send(0, &wire.Close{})
		}
		p.answers(f)
	}
	if f.code == wire.CodeClose {
		p.closeAfterWriting()
	}
}

func (p *peer) answerHeader(id wire.ProtoID) {
	header := wire.ProtocolHeader(id)
	p.raw(header[:])
	if id == wire.ProtoSASL {
		p.send(0, &wire.SASLMechanisms{Mechanisms: append(p.mechanisms, "PLAIN", "ANONYMOUS")})
	}
}

func (p *peer) answerAttach(channel uint16, a *wire.Attach) {
	answer := &wire.Attach{
		Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: a.SndSettleMode, RcvSettleMode: a.RcvSettleMode,
		Source: a.Source, Target: a.Target,
	}
	if a.Role == wire.RoleReceiver {
		answer.InitialDeliveryCount = wire.Some(0)
	}
	p.send(channel, answer)
	if a.Role == wire.RoleSender && p.credit > 0 {
		p.grant(channel, a.Handle, p.credit)
	}
}

// answerDrain uses the credit up, as a sender that has nothing must.
func (p *peer) answerDrain(channel uint16, flow *wire.Flow) {
	p.mu.Lock()
	l := p.linkLocked(channel, flow.Handle.Value, flow.Handle.Set)
	if l == nil || l.attach.Role != wire.RoleReceiver || !flow.Drain {
		p.mu.Unlock()
		return
	}
	l.count = l.limit
	count, next := l.count, p.sessions[channel].nextID
	p.mu.Unlock()
	p.send(channel, &wire.Flow{
		NextIncomingID: wire.Some(0), IncomingWindow: 1 << 20, NextOutgoingID: next, OutgoingWindow: 1 << 20,
		Handle: wire.Some(flow.Handle.Value), DeliveryCount: wire.Some(count), LinkCredit: wire.Some(0), Drain: true,
	})
}

// refuse answers an attach without a terminus and with a detach, as 2.6.3 says.
func (p *peer) refuse(channel uint16, a *wire.Attach, cause *wire.Error) {
	answer := &wire.Attach{Name: a.Name, Handle: a.Handle, Role: !a.Role}
	if a.Role == wire.RoleReceiver {
		answer.InitialDeliveryCount = wire.Some(0)
	}
	p.send(channel, answer)
	p.send(channel, &wire.Detach{Handle: a.Handle, Closed: true, Error: cause})
}

// grant gives a client that sends credit, counted from its first delivery.
func (p *peer) grant(channel uint16, handle, credit uint32) {
	p.mu.Lock()
	s := p.sessions[channel]
	next, incoming := s.nextID, s.incoming
	p.mu.Unlock()
	p.send(channel, &wire.Flow{
		NextIncomingID: wire.Some(incoming), IncomingWindow: 1 << 20, NextOutgoingID: next, OutgoingWindow: 1 << 20,
		Handle: wire.Some(handle), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(credit),
	})
}

// settle answers one delivery of the client.
func (p *peer) settle(channel uint16, id uint32, state wire.State) {
	p.send(channel, &wire.Disposition{Role: wire.RoleReceiver, First: id, Last: id, Settled: true, State: state})
}

// takeBack settles a delivery of the link of "orders" by itself, as released.
func (p *peer) takeBack(id uint32) {
	p.send(p.link("orders", wire.RoleReceiver).channel, &wire.Disposition{
		Role: wire.RoleSender, First: id, Last: id, Settled: true, State: wire.State{Kind: wire.StateReleased},
	})
}

// deliver sends a message over the link of an address once there is credit,
// and returns its delivery-id.
func (p *peer) deliver(address string, payload []byte) uint32 {
	p.t.Helper()
	l := p.link(address, wire.RoleReceiver)
	p.until(func() bool { return int32(l.limit-l.count) > 0 }, "credit for "+address)
	return p.deliverAnyway(l, payload, 1)
}

// deliverAnyway sends a message n times at once, whatever credit there is, and
// returns the last delivery-id.
func (p *peer) deliverAnyway(l *peerLink, payload []byte, n int) (id uint32) {
	p.mu.Lock()
	var burst []byte
	for range n {
		s := p.sessions[l.channel]
		id = s.nextID
		s.nextID++
		l.count++
		start := len(burst)
		burst = (&wire.Transfer{
			Handle: l.attach.Handle, DeliveryID: wire.Some(id), DeliveryTag: []byte{byte(id >> 8), byte(id)}, MessageFormat: wire.Some(0),
			Settled: l.attach.SndSettleMode == wire.SndSettled,
		}).Append(wire.BeginFrame(burst, wire.TypeAMQP, l.channel))
		burst = append(burst, payload...)
		wire.EndFrame(burst, start)
	}
	p.mu.Unlock()
	p.raw(burst)
	return id
}

// data is a message with one data section.
func data(body string) []byte { return wire.AppendData(nil, []byte(body)) }

// until waits until ok, which is called with the lock held after each frame.
func (p *peer) until(ok func() bool, what string) {
	p.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		good, news := ok(), p.news
		p.mu.Unlock()
		if good {
			return
		}
		select {
		case <-news:
		case <-limit:
			require.Failf(p.t, "the client did not get so far", "waited for %s; it sent %v", what, p.trace())
		case <-p.gone:
			p.mu.Lock()
			good := ok()
			p.mu.Unlock()
			if good {
				return
			}
			require.Failf(p.t, "the client is gone", "waited for %s; it sent %v", what, p.trace())
		}
	}
}

// await returns the next frame that the client sends, after the one awaited
// before, for which match is true.
func (p *peer) await(what string, match func(frame) bool) frame {
	p.t.Helper()
	var found frame
	p.until(func() bool {
		for ; p.cursor < len(p.frames); p.cursor++ {
			if match(p.frames[p.cursor]) {
				found = p.frames[p.cursor]
				p.cursor++
				return true
			}
		}
		return false
	}, what)
	return found
}

func (p *peer) awaitCode(code uint64) frame {
	p.t.Helper()
	return p.await(codeNames[code], func(f frame) bool { return f.code == code })
}

// awaitDisposition returns the next disposition, with its range.
func (p *peer) awaitDisposition() *wire.Disposition {
	p.t.Helper()
	return p.awaitCode(wire.CodeDisposition).perf.(*wire.Disposition)
}

// sent returns everything that the client sent with one of codes, or all.
func (p *peer) sent(codes ...uint64) []frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []frame
	for _, f := range p.frames {
		for _, code := range codes {
			if f.code == code {
				found = append(found, f)
			}
		}
	}
	return found
}

// outcomes maps each delivery-id that the client settled to how often it did
// and as what.
func (p *peer) outcomes() map[uint32][]wire.StateKind {
	all := map[uint32][]wire.StateKind{}
	for _, f := range p.sent(wire.CodeDisposition) {
		d := f.perf.(*wire.Disposition)
		for id := d.First; id != d.Last+1; id++ {
			all[id] = append(all[id], d.State.Kind)
		}
	}
	return all
}

var codeNames = map[uint64]string{
	headerCode: "header", wire.CodeSASLInit: "init", wire.CodeOpen: "open", wire.CodeBegin: "begin", wire.CodeAttach: "attach",
	wire.CodeFlow: "flow", wire.CodeTransfer: "transfer", wire.CodeDisposition: "disposition", wire.CodeDetach: "detach",
	wire.CodeEnd: "end", wire.CodeClose: "close",
}

// trace tells what the client sent, links and sessions by whom they serve.
func (p *peer) trace() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traceLocked()
}

func (p *peer) traceLocked() []string {
	var out []string
	for _, f := range p.frames {
		text := codeNames[f.code]
		switch perf := f.perf.(type) {
		case *wire.Attach:
			text += " " + p.nameLocked(f.channel, perf.Handle)
		case *wire.Detach:
			text += " " + p.nameLocked(f.channel, perf.Handle)
		case *wire.Begin, *wire.End:
			text += fmt.Sprintf(" %d", f.channel)
		}
		out = append(out, text)
	}
	return out
}

func (p *peer) nameLocked(channel uint16, handle uint32) string {
	if l := p.linkLocked(channel, handle, true); l != nil {
		return l.attach.Role.String() + " " + l.address
	}
	return "unknown"
}
