package amqptest_test

import (
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

const later = time.Second

// when says whether something took about as long as later.
func when(began time.Time) string {
	if time.Since(began) > later*8/10 {
		return "then"
	}
	return "at once"
}

func deliveryTime(began time.Time) wire.Entry {
	return wire.Entry{Key: wire.Symbol("x-opt-delivery-time"), Value: began.Add(later).UnixMilli()}
}

// modifiedLater asks for a message to come back at a time.
func modifiedLater(t *testing.T, p *peer) string { return laterIn(t, p, queueOptions{}) }

func classicModifiedLater(t *testing.T, p *peer) string {
	return laterIn(t, p, queueOptions{classic: true})
}

func laterIn(t *testing.T, p *peer, o queueOptions) string {
	n := p.queue(t, o)
	put(t, p, n, text("a"))
	r := openRaw(t, p)
	x := r.takeOne(n)
	began := time.Now()
	r.settle(wire.State{Kind: wire.StateModified, DeliveryFailed: true, Annotations: wire.Map{deliveryTime(began)}}, x)
	openRaw(t, p).takeOne(n)
	return when(began)
}

// publishedLater asks for a message to be delivered at a time.
func publishedLater(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	began := time.Now()
	m := text("a")
	m.Annotations = amqp.Annotations{"x-opt-delivery-time": began.Add(later).UnixMilli()}
	put(t, p, n, m)
	openRaw(t, p).takeOne(n)
	return when(began)
}

func publishedWithDelay(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	began := time.Now()
	m := text("a")
	m.Annotations = amqp.Annotations{"x-opt-delivery-delay": later.Milliseconds()}
	put(t, p, n, m)
	openRaw(t, p).takeOne(n)
	return when(began)
}
