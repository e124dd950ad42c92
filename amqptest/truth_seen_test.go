package amqptest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func idOf(t *testing.T, x *wire.Transfer) string {
	t.Helper()
	var m amqp.Message
	require.NoError(t, m.UnmarshalBinary(x.Payload))
	return string(m.GetData())
}

// described is the body and the delivery-count.
func described(t *testing.T, x *wire.Transfer) string {
	t.Helper()
	var s wire.Sections
	require.NoError(t, s.Parse(x.Payload))
	if s.Header.DeliveryCount == 0 {
		return idOf(t, x)
	}
	return fmt.Sprintf("%s (count %d)", idOf(t, x), s.Header.DeliveryCount)
}

// left takes what is in n and says what it was. Brokers put a message back
// behind the answers to what came after it, so that an empty queue is asked
// again; over a link of its own, because Artemis does not answer every drain
// that comes on the heels of another.
func left(t *testing.T, p *peer, n node) string {
	t.Helper()
	r := openRaw(t, p)
	var all []*wire.Transfer
	for empty := 0; empty < 3; empty++ {
		h := r.receiver(n)
		if xs := r.drain(h, 100); len(xs) > 0 {
			r.settle(accepted, xs...)
			all, empty = append(all, xs...), 0
		}
		r.send(&wire.Detach{Handle: h, Closed: true})
		await[wire.Detach](r)
	}
	return listed(t, all)
}

func listed(t *testing.T, xs []*wire.Transfer) string {
	t.Helper()
	if len(xs) == 0 {
		return "nothing"
	}
	var s []string
	for _, x := range xs {
		s = append(s, described(t, x))
	}
	return strings.Join(s, " ")
}

func wireState(s wire.State) string {
	switch s.Kind {
	case wire.StateNone:
		return "no state"
	case wire.StateAccepted:
		return "accepted"
	case wire.StateReleased:
		return "released"
	case wire.StateRejected:
		return said("rejected", s.Error)
	case wire.StateModified:
		b := "modified"
		if s.DeliveryFailed {
			b += " failed"
		}
		if s.UndeliverableHere {
			b += " undeliverable-here"
		}
		return b
	case wire.StateReceived:
		return "received"
	}
	return fmt.Sprintf("state %d", s.Kind)
}

func said(what string, e *wire.Error) string {
	if e == nil {
		return what
	}
	return what + " " + strings.TrimPrefix(string(e.Condition), "amqp:")
}
