package amqptest

import (
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// browsing attaches a receiver on handle 0 that only looks.
func (r *raw) browsing(credit uint32) *raw {
	a := attachReceiver(0)
	a.Source.DistributionMode = "copy"
	r.send(a)
	var answer wire.Attach
	require.NoError(r.t, answer.Decode(r.await(wire.CodeAttach)))
	assert.EqualValues(r.t, "copy", answer.Source.DistributionMode)
	r.send(linkFlow(credit))
	return r
}

// browsed returns the bodies of the next n deliveries.
func (r *raw) browsed(n int) []string {
	r.t.Helper()
	var got []string
	for range n {
		var m amqp.Message
		require.NoError(r.t, m.UnmarshalBinary(r.awaitTransfer().Payload))
		got = append(got, string(m.GetData()))
		assert.True(r.t, m.Header.FirstAcquirer, "nobody has taken it")
	}
	return got
}

func TestBrowse_seesEachMessageOnceAndTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		r := dialRaw(t, s).opened().browsing(10)
		assert.Equal(t, []string{"0", "1", "2"}, r.browsed(3))
		r.send(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 2, Settled: true, State: stateAccepted})
		require.NoError(t, s.Put("orders", text("3")))
		assert.Equal(t, []string{"3"}, r.browsed(1))
		synctest.Wait()
		assert.Equal(t, []string{"0", "1", "2", "3"}, bodies(t, s))
		assert.Empty(t, s.Settlements("orders"))

		again := dialRaw(t, s).opened().browsing(10)
		assert.Equal(t, []string{"0", "1", "2", "3"}, again.browsed(4), "another one sees them all")
		rcv := manual(t, connect(t, s, nil), "orders", 4)
		for range 4 {
			m := receive(t, rcv)
			assert.True(t, m.Header.FirstAcquirer)
			require.NoError(t, rcv.ReleaseMessage(t.Context(), m))
		}
		synctest.Wait()
		assert.Len(t, bodies(t, s), 4)
		for _, r := range []*raw{r, again} { // what came back it has seen
			r.send(&wire.Detach{Closed: true})
			r.awaitDetach()
			r.send(&wire.Close{})
			require.NotNil(t, r.await(wire.CodeClose))
		}
		assert.Len(t, bodies(t, s), 4)
	})
}

func TestBrowse_endsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(2)...))
		r := dialRaw(t, s).opened().browsing(0)
		f := linkFlow(5)
		f.Drain = true
		r.send(f)
		assert.Equal(t, []string{"0", "1"}, r.browsed(2))
		end := r.awaitFlow()
		assert.Zero(t, end.LinkCredit.Value)
		assert.EqualValues(t, 5, end.DeliveryCount.Value)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestBrowse_competesWithNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		rcv := manual(t, connect(t, s, nil), "orders", 2)
		r := dialRaw(t, s).opened().browsing(10)
		for range 2 {
			require.NoError(t, s.Put("orders", numbered(2)...))
			assert.Equal(t, []string{"0", "1"}, r.browsed(2))
			for _, id := range []string{"0", "1"} {
				m := receive(t, rcv)
				assert.Equal(t, id, m.Properties.MessageID)
				require.NoError(t, rcv.AcceptMessage(t.Context(), m))
			}
			require.NoError(t, rcv.IssueCredit(2))
		}
		r.send(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 3, Settled: true, State: stateAccepted})
		require.NoError(t, s.Idle(t.Context()))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}
