package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A link that is lost between a settlement and its disposition's way out: while
// it waits for company, or behind a peer that does not read. It may have come too
// late, so the message may come again; it never settles a delivery of the next
// link, where the same ids are others'.
func TestFieldReport_B14_settlementThatWaitsToLeaveIsForItsLinkAlone(t *testing.T) {
	for loss, lose := range losses {
		for _, stuck := range []bool{false, true} {
			name := loss + " while it waits for company"
			if stuck {
				name = loss + " behind a peer that does not read"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ps := newPeers(t, nil)
					b := amqpflow.New("amqp://localhost")
					held, release := make(chan *amqpflow.Delivery, 3), make(chan struct{})
					sub := b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
						held <- d
						<-release
						return nil
					}, &amqpflow.SubscribeOptions{Workers: 3})
					p := ps.connect(b)
					reads := make(chan struct{})
					if stuck {
						p.on(wire.CodeDisposition, func(frame) bool { <-reads; return true })
					}
					for range 2 {
						p.deliver("orders", data("x"))
						synctest.Wait()
					}
					require.NoError(t, (<-held).Accept(t.Context()))
					written := 0
					if stuck { // the first disposition is the last thing that the peer reads
						quiet()
						written = 1
					}
					require.NoError(t, (<-held).Accept(t.Context()))
					if stuck {
						quiet()
					}
					synctest.Wait()
					require.Len(t, p.sent(wire.CodeDisposition), written)
					lose(p, p.link("orders", wire.RoleReceiver))
					close(reads)
					quiet()
					require.NoError(t, sub.Attached(t.Context()))

					next := ps.latest()
					assert.Empty(t, next.settledOnLatest())
					id := next.deliver("orders", data("again"))
					quiet()
					assert.Equal(t, "again", string((<-held).Data()))
					assert.Empty(t, next.settledOnLatest(), "its handler works")
					close(release)
					quiet()
					if settled := next.settledOnLatest(); assert.Len(t, settled, 1) {
						assert.Equal(t, id, settled[0].First)
						assert.Equal(t, wire.StateAccepted, settled[0].State.Kind)
					}
					assert.Equal(t, uint64(3), sub.Stats().Accepted)
					assert.Zero(t, sub.Stats().Running, "the slots are free")
					shutdown(t, b)
				})
			})
		}
	}
}

// settledOnLatest returns the dispositions that came behind the last attach.
func (p *peer) settledOnLatest() (all []*wire.Disposition) {
	for _, f := range p.sent(wire.CodeAttach, wire.CodeDisposition) {
		switch perf := f.perf.(type) {
		case *wire.Attach:
			all = nil
		case *wire.Disposition:
			all = append(all, perf)
		}
	}
	return all
}
