package dataplane

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Every counter starts shortly before 2^32 and goes on past it: transfer-ids,
// delivery-ids and delivery-counts of both directions.
func TestSession_countersWrap(t *testing.T) {
	const start = 1<<32 - 40
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{
			orig: origins{transfer: start, delivery: start + 1, count: start + 2},
			peer: peerOptions{
				begin: wire.Begin{NextOutgoingID: start + 3, IncomingWindow: 10},
				sent:  start + 4, delivery: start + 5,
			},
		})
		s, as := r.session()
		in, _, pin := r.receiver(s, as, "in", LinkOptions{})
		out, _, pout := r.sender(s, as, "out")
		pin.window = 7
		var receipts []*Receipt
		var ids []uint32
		for i := range 100 {
			// Two transfers in, in one delivery, settled out of order and in runs.
			require.NoError(t, in.Grant(7, true))
			synctest.Wait()
			body := []byte{byte(i), 1}
			id := pin.deliver(1, false, body)
			d := take(t, in, 1)[0]
			require.Equal(t, id, d.ID)
			require.Equal(t, body, d.Payload)
			if ids = append(ids, id); len(ids) == 4 {
				require.Empty(t, in.SettleAll([]uint32{ids[2], ids[0], ids[3], ids[1]}, accepted))
				ids = ids[:0]
			}
			// Three transfers out, in two deliveries.
			pout.creditWith(pout.s.flow(10), 2)
			synctest.Wait()
			for _, n := range []int{0, 1 << 16} {
				rc, err := out.Send(t.Context(), make([]byte, n), SendOptions{})
				require.NoError(t, err)
				receipts = append(receipts, rc)
			}
			if len(receipts) == 20 {
				last := receipts[19].id
				synctest.Wait()
				pout.s.accept(last-19, last)
				for _, rc := range receipts {
					require.Equal(t, wire.StateAccepted, outcome(t, rc).Kind)
				}
				receipts = nil
			}
		}
		synctest.Wait()
		s.mu.Lock()
		assert.Less(t, s.nextIncoming, uint32(200))
		assert.Less(t, s.nextOutgoing, uint32(300))
		assert.Less(t, s.nextDelivery, uint32(200))
		assert.Less(t, in.count, uint32(100))
		assert.Less(t, out.sent, uint32(200))
		s.mu.Unlock()
		r.p.locked(func() { assert.Empty(t, pin.s.outstanding) })
	})
}

func TestSession_windowsAndCreditsAsLargeAsTheyGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{peer: peerOptions{begin: wire.Begin{IncomingWindow: 1<<32 - 1}}})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		r.p.locked(func() { pl.s.windowEnd = maxStep; pl.creditEnd = maxStep })
		f := wire.Flow{NextIncomingID: wire.Some(0), IncomingWindow: 1<<32 - 1}
		f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(pl.mine), wire.Some(0), wire.Some(1<<32-1)
		r.p.send(pl.s.mine, &f)
		synctest.Wait()
		sendAll(t, l, 10)
		synctest.Wait()
		assert.Len(t, pl.received(), 10)
	})
}
