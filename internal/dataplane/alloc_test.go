//go:build !race

package dataplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// A delivery costs one allocation, for its payload and tag together, from the
// socket's buffer to the disposition's.
func TestLink_oneAllocationADelivery(t *testing.T) {
	c, s := mapped(t)
	l := s.ours[0]
	require.NoError(t, l.Grant(100, true))
	tr := wire.Transfer{DeliveryTag: make([]byte, 4), MessageFormat: wire.Some(0)}
	payload := make([]byte, 512)
	buf := make([]Delivery, 10)
	id := uint32(0)
	var frame []byte
	one := func() {
		tr.DeliveryID = wire.Some(id)
		id++
		frame = append(tr.Append(frame[:0]), payload...)
		require.NoError(t, c.rd.frame(wire.FrameHeader{}, frame))
		require.NoError(t, c.rd.finish())
		n := l.Deliveries(buf)
		require.Equal(t, 1, n)
		require.NoError(t, l.Settle(buf[0].ID, accepted))
		require.NoError(t, l.Grant(100, false))
		if id%50 == 0 {
			s.collect()
			c.out.giveBack(c.out.swap(nil, nil))
		}
	}
	for range 200 {
		one()
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(5000, one), 1.05)
}

// A message costs its receipt and the channel that Done returns, its disposition
// nothing.
func TestLink_twoAllocationsAMessage(t *testing.T) {
	c, s := mapped(t)
	l := s.ours[2]
	c.out.setFrameMax(4096)
	payload := make([]byte, 512)
	d := wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: *accepted}
	var frame []byte
	one := func() {
		l.creditEnd++
		s.windowEnd++
		r, err := l.Send(t.Context(), payload, SendOptions{})
		require.NoError(t, err)
		d.First, d.Last = r.id, r.id
		frame = d.Append(frame[:0])
		require.NoError(t, c.rd.frame(wire.FrameHeader{}, frame))
		<-r.Done()
		if r.id%50 == 0 {
			c.out.giveBack(c.out.swap(nil, nil))
		}
	}
	for range 200 {
		one()
	}
	assert.LessOrEqual(t, testing.AllocsPerRun(5000, one), 2.05)
}
