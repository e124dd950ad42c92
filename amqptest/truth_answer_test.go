package amqptest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func sourceAnswered(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	a.Source.Outcomes = []wire.Symbol{"amqp:accepted:list", "amqp:released:list"}
	b := r.answer(a)
	var s []string
	for _, o := range b.Source.Outcomes {
		s = append(s, strings.TrimSuffix(strings.TrimPrefix(string(o), "amqp:"), ":list"))
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

func defaultOutcome(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	b := r.answer(a)
	if b.Source.DefaultOutcome == nil {
		return "none"
	}
	return wireState(*b.Source.DefaultOutcome)
}

func senderSettles(t *testing.T, p *peer) string {
	return modes(t, p, func(a *wire.Attach) { a.SndSettleMode = wire.SndSettled })
}

func receiverSecond(t *testing.T, p *peer) string {
	return modes(t, p, func(a *wire.Attach) { a.RcvSettleMode = wire.RcvSecond })
}

// modes attaches a receiver that asks for settlement modes, and says which it
// is to have.
func modes(t *testing.T, p *peer, ask func(*wire.Attach)) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	ask(a)
	b := r.answer(a)
	if b.Source == nil {
		return r.ending()
	}
	return fmt.Sprintf("snd %d, rcv %d", b.SndSettleMode, b.RcvSettleMode)
}

func maxMessageSize(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	a := r.attach(wire.RoleSender)
	a.Target = n.target()
	return fmt.Sprint(r.answer(a).MaxMessageSize)
}

// closingDetach and its sibling show how a detach is answered.
func closingDetach(t *testing.T, p *peer) string { return detached(t, p, true) }

func nonClosingDetach(t *testing.T, p *peer) string { return detached(t, p, false) }

func detached(t *testing.T, p *peer, closed bool) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(&wire.Detach{Handle: h, Closed: closed})
	if await[wire.Detach](r).Closed {
		return "closed"
	}
	return "not closed"
}
