package amqpflow_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// unsettledNeverExceedsCredit looks at every frame of the socket. What the
// peer may have unsettled at most is known from what we wrote: the deliveries
// that our flows allow, less those that we had settled before them.
func unsettledNeverExceedsCredit(t *testing.T, p suitePeer) {
	const n = 600
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, numbered(n)...)
	for _, credit := range []int{1, 2, 7, 64} {
		t.Run(fmt.Sprint(credit), func(t *testing.T) {
			var wiretap tap
			b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
			const take = n / 4
			enough := make(chan struct{})
			calls := 0
			sub := b.Subscribe(q.addr, func(ctx context.Context, d *amqpflow.Delivery) error {
				if calls++; calls == take {
					close(enough)
				}
				if calls > take {
					return amqpflow.Release()
				}
				if calls%3 == 0 {
					return d.Accept(ctx)
				}
				return nil
			}, &amqpflow.SubscribeOptions{Credit: credit})
			mustConnect(t, b)
			await(t, patience, enough)
			assert.LessOrEqual(t, sub.Stats().Credit+sub.Stats().Held, credit)
			shutDown(t, b)

			w := windowCheck{t: t, credit: credit}
			for _, f := range wiretap.all(t) {
				w.frame(f)
			}
			require.GreaterOrEqual(t, w.settled, take)
			assert.Positive(t, w.grants)
			assert.LessOrEqual(t, w.most, credit, "unsettled as seen from here")
			assert.Empty(t, w.open, "everything was settled in the end")
			t.Logf("credit %d: at most %d unsettled, %d grants for %d deliveries", credit, w.most, w.grants, w.settled)
		})
	}
}

// windowCheck follows one receiving link, the only one of its connection.
type windowCheck struct {
	t       *testing.T
	credit  int
	initial uint32          // the link's initial delivery-count
	open    map[uint32]bool // deliveries that came and are not settled
	settled int
	most    int
	grants  int
}

func (w *windowCheck) frame(f tapFrame) {
	switch body := f.body.(type) {
	case *wire.Attach:
		if !f.sent {
			w.initial, w.open = body.InitialDeliveryCount.Value, map[uint32]bool{}
		}
	case *wire.Transfer:
		if !f.sent && body.DeliveryID.Set {
			w.open[body.DeliveryID.Value] = true
			w.most = max(w.most, len(w.open))
		}
	case *wire.Disposition:
		if f.sent && body.Settled {
			w.settle(body.First, body.Last)
		}
	case *wire.Flow:
		if f.sent && body.LinkCredit.Set {
			w.grant(body)
		}
	}
}

func (w *windowCheck) settle(first, last uint32) {
	for id := first; ; id++ {
		require.True(w.t, w.open[id], "delivery %d is settled once", id)
		delete(w.open, id)
		w.settled++
		if id == last {
			return
		}
	}
}

// grant holds a flow against the window: the peer, which reads our frames in
// their order, can have no more unsettled than this allows.
func (w *windowCheck) grant(f *wire.Flow) {
	w.grants++
	allowed := int(int32(f.DeliveryCount.Value + f.LinkCredit.Value - w.initial))
	require.LessOrEqual(w.t, allowed-w.settled, w.credit, "delivery-count %d, credit %d, %d settled",
		f.DeliveryCount.Value-w.initial, f.LinkCredit.Value, w.settled)
}
