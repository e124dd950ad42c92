package amqptest_test

import (
	"testing"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// lost takes a message, loses the link in that way, and says how the message
// comes back.
func lost(lose func(r *rawClient, handle uint32)) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string { return lostIn(t, p, queueOptions{}, lose) }
}

func classicLost(lose func(r *rawClient, handle uint32)) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string { return lostIn(t, p, queueOptions{classic: true}, lose) }
}

func lostIn(t *testing.T, p *peer, o queueOptions, lose func(r *rawClient, handle uint32)) string {
	n := p.queue(t, o)
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 1))
	await[wire.Transfer](r)
	lose(r, h)
	again := openRaw(t, p)
	x := again.takeOne(n)
	again.settle(accepted, x)
	return described(t, x)
}

// suspended detaches from a message without closing the link, and says where
// the message is before and after the session's end.
func suspended(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 1))
	await[wire.Transfer](r)
	byNonClosingDetach(r, h)
	if s := left(t, p, n); s != "nothing" {
		return s
	}
	bySessionEnd(r, h)
	return "kept for the link, then " + left(t, p, n)
}

func byClosingDetach(r *rawClient, handle uint32) {
	r.send(&wire.Detach{Handle: handle, Closed: true})
	await[wire.Detach](r)
}

func byNonClosingDetach(r *rawClient, handle uint32) {
	r.send(&wire.Detach{Handle: handle})
	await[wire.Detach](r)
}

func bySessionEnd(r *rawClient, _ uint32) {
	r.send(&wire.End{})
	await[wire.End](r)
}

func byClose(r *rawClient, _ uint32) {
	r.send(&wire.Close{})
	r.ending()
}

func byCut(r *rawClient, _ uint32) { _ = r.nc.Close() }

// lostAll loses the link with three messages on it, and says in which order
// they come back.
func lostAll(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"), text("b"), text("c"), text("d"))
	r := openRaw(t, p)
	h := r.receiver(n)
	r.send(r.credit(h, 3))
	for range 3 {
		await[wire.Transfer](r)
	}
	byClosingDetach(r, h)
	return left(t, p, n)
}

// settledBeforeTheEnd accepts and ends the session in one write.
func settledBeforeTheEnd(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	r.settle(accepted, r.takeOne(n))
	bySessionEnd(r, 0)
	return left(t, p, n)
}
