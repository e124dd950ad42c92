package amqptest_test

import (
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// expired waits for a message with a time to live to go, giving it back each
// time it comes.
func expired(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{dead: true, expires: true})
	const ttl = 300 * time.Millisecond
	m := text("a")
	m.Header = &amqp.MessageHeader{TTL: ttl, Priority: 4}
	began := time.Now()
	put(t, p, n, m)
	_, over := again(t, p, n, released, func(int) bool { return time.Since(began) > patience })
	if over {
		return "still there"
	}
	require.Greater(t, time.Since(began), ttl*9/10)
	return "gone"
}

// full publishes to a queue that takes no more.
func full(t *testing.T, p *peer) string {
	n, m := p.full(t, false)
	r := openRaw(t, p)
	h := r.sender(n)
	for range 40 {
		if s := r.publish(h, m()); s != "accepted" {
			return s
		}
	}
	return "accepted"
}

// blocked attaches to a queue that takes no more, and is one that says so by
// credit.
func blocked(t *testing.T, p *peer) string {
	n, m := p.full(t, true)
	r := openRaw(t, p)
	h := r.sender(n)
	for range min(40, r.granted) {
		if s := r.publish(h, m()); s != "accepted" {
			return s
		}
	}
	late := openRaw(t, p)
	a := late.attach(wire.RoleSender)
	a.Target = n.target()
	late.send(a)
	late.fence(0) // which is another link, and gets credit
	for {
		f := await[wire.Flow](late)
		if f.LinkCredit.Value > 0 && f.Handle.Value == a.Handle {
			return "credit"
		}
		if f.LinkCredit.Value > 0 {
			return "no credit"
		}
	}
}
