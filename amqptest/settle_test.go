package amqptest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// accepted is a consumer's disposition of one delivery.
func accepted(id uint32, settled bool) *wire.Disposition {
	return &wire.Disposition{Role: wire.RoleReceiver, First: id, Last: id, Settled: settled, State: wire.State{Kind: wire.StateAccepted}}
}

// inOne sends deliveries on handle 0 in one write.
func (r *raw) inOne(ts ...wire.Transfer) {
	var b []byte
	for _, t := range ts {
		b = append(b, frameOf(wire.TypeAMQP, 0, &t, hello)...)
	}
	r.bytes(b)
}

func settled(t wire.Transfer) wire.Transfer {
	t.Settled, t.HasSettled = true, true
	return t
}

func TestServer_answersOnlyWhatIsUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		r.inOne(first(0), settled(first(1)), first(2))
		for _, id := range []uint32{0, 2} {
			d := r.awaitDisposition()
			assert.Equal(t, []uint32{id, id}, []uint32{d.First, d.Last})
		}
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_answersEachDeliveryWithItsOwnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Answer("orders", amqpflow.Released, nil).After(1)))
		r := dialRaw(t, s).opened().sending()
		r.inOne(first(0), first(1), first(2))
		for id, kind := range []wire.StateKind{wire.StateAccepted, wire.StateReleased, wire.StateAccepted} {
			d := r.awaitDisposition()
			assert.Equal(t, []uint32{uint32(id), uint32(id)}, []uint32{d.First, d.Last})
			assert.Equal(t, kind, d.State.Kind)
		}
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_answersEachLinkInItsMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		second := attachSender(1)
		second.RcvSettleMode = rcvSecond
		r.send(second)
		r.awaitFlow()
		other := first(1)
		other.Handle = 1
		r.inOne(first(0), other)
		assert.True(t, r.awaitDisposition().Settled)
		assert.False(t, r.awaitDisposition().Settled)
		synctest.Wait()
		assert.Len(t, s.Messages("orders"), 2)
		in := attachReceiver(2)
		f := linkFlow(2)
		f.Handle, f.NextOutgoingID = wire.Some(2), 2
		r.send(in, f)
		r.awaitTransfer()
		r.awaitTransfer()
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Last: 1, Settled: true, State: wire.State{Kind: wire.StateAccepted}})
		synctest.Wait()
		assert.False(t, s.idle(), "the publisher has not settled yet")
		r.send(&wire.Disposition{Role: wire.RoleSender, First: 1, Last: 1, Settled: true})
		require.NoError(t, s.Idle(t.Context()))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_settlesADeliveryThatAsksForModeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened()
		out := attachSender(0)
		out.RcvSettleMode = rcvSecond
		r.send(out)
		r.awaitFlow()
		tr := first(0)
		tr.RcvSettleMode = wire.Some(0)
		r.transfer(tr, hello)
		assert.True(t, r.awaitDisposition().Settled)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_ignoresADispositionOfWhatWasSentSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		r := dialRaw(t, s).opened()
		in := attachReceiver(0)
		in.SndSettleMode = sndSettled
		r.send(in, linkFlow(3))
		for range 3 {
			assert.True(t, r.awaitTransfer().Settled)
		}
		r.send(accepted(1, true), accepted(0, true), &wire.Close{})
		r.await(wire.CodeClose)
		assert.Empty(t, s.Settlements("orders"))
	})
}

func TestServer_ignoresAClientThatSettlesAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(1)...))
		r := dialRaw(t, s).opened()
		in := attachReceiver(0)
		in.RcvSettleMode = rcvSecond
		r.send(in, linkFlow(1))
		r.awaitTransfer()
		r.send(accepted(0, false))
		d := r.awaitDisposition()
		assert.Equal(t, wire.Disposition{Role: wire.RoleSender, Settled: true, State: wire.State{Kind: wire.StateAccepted}}, d)
		r.send(accepted(0, true), &wire.Close{})
		r.await(wire.CodeClose)
		assert.Len(t, s.Settlements("orders"), 1)
	})
}

func TestServer_answersBeforeItCloses(t *testing.T) {
	for name, last := range map[string]performative{"close": &wire.Close{}, "end": &wire.End{}, "detach": &wire.Detach{}, "a violation": &wire.Begin{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer()
				r := dialRaw(t, s).opened().sending()
				tr := first(0)
				r.bytes(append(frameOf(wire.TypeAMQP, 0, &tr, hello), frameOf(wire.TypeAMQP, 0, last, nil)...))
				code, _, err := wire.PeekDescriptor(r.frame())
				require.NoError(t, err)
				assert.Equal(t, wire.CodeDisposition, code)
				assert.Equal(t, name == "a violation", s.Close() != nil)
			})
		})
	}
}

func TestExcused_modelOfASet(t *testing.T) {
	var e excused
	model := map[uint32]bool{}
	rnd := uint64(7)
	for range 3000 {
		rnd = rnd*6364136223846793005 + 1442695040888963407
		id := uint32(rnd>>40) % 2000
		e.add(id)
		model[id] = true
	}
	for id := range uint32(2000) {
		require.Equal(t, model[id], e.has(id), id)
	}
}

// oddMap has keys that cannot stand in a Go map, and are no Go values to compare.
var oddMap = wire.Map{{Key: []byte("a"), Value: int32(1)}, {Key: []byte("b"), Value: int32(2)}, {Key: wire.List{}, Value: int32(3)}, {Key: wire.Symbol("x"), Value: int32(4)}}

func TestServer_takesARejectionWhoseInfoHoldsOddKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(1)...))
		r := dialRaw(t, s).opened().receiving(1)
		r.awaitTransfer()
		d := accepted(0, true)
		d.State = wire.State{Kind: wire.StateRejected, Error: &wire.Error{
			Condition: "amqp:decode-error", Info: wire.Map{{Key: wire.Symbol("x-odd"), Value: oddMap}},
		}}
		r.send(d, &wire.Close{})
		r.await(wire.CodeClose)
		all := s.Settlements("orders")
		require.Len(t, all, 1)
		assert.Equal(t, map[any]any{"x": int32(4)}, all[0].Error.Info["x-odd"])
	})
}

func TestServer_ignoresAResumedDeliveryThatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened()
		out := attachSender(0)
		out.Unsettled = wire.Map{{Key: []byte{0}, Value: nil}}
		r.send(out)
		r.awaitFlow()
		resumed := first(0)
		resumed.Resume = true
		r.inOne(resumed, first(1))
		assert.Equal(t, uint32(1), r.awaitDisposition().First)
		assert.Equal(t, []string{"hello"}, bodies(t, s))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_answersNothingThatItsPublisherSettlesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		delivery := first(0)
		delivery.More = true
		r.transfer(delivery, hello)
		settled := &wire.Disposition{Role: wire.RoleSender, Settled: true}
		r.send(settled)
		r.transfer(wire.Transfer{}, nil)
		r.send(settled, &wire.Close{}) // twice, which may have crossed an answer for all that is known
		for body := r.frame(); body != nil; body = r.frame() {
			code, _, err := wire.PeekDescriptor(body)
			require.NoError(t, err)
			assert.NotEqual(t, wire.CodeDisposition, code)
		}
		assert.Equal(t, []string{"hello"}, bodies(t, s))
	})
}
