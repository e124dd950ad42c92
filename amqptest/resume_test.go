package amqptest

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// withTwo is a client that has been given two messages and has detached.
func withTwo(t *testing.T, s *Server, d wire.Detach) *raw {
	t.Helper()
	require.NoError(t, s.Put("orders", numbered(2)...))
	r := dialRaw(t, s).opened().receiving(2)
	r.awaitTransfer()
	r.awaitTransfer()
	r.send(&d)
	assert.Equal(t, d.Closed, r.awaitDetach().Closed)
	return r
}

func bye(r *raw) {
	r.send(&wire.Close{})
	r.await(wire.CodeClose)
}

var acceptFirst = &wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: wire.State{Kind: wire.StateAccepted}}

func TestLink_staysLiveForDispositionsAfterADetachThatDoesNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := withTwo(t, s, wire.Detach{})
		assert.Equal(t, 2, s.Unsettled("orders"))
		assert.Empty(t, s.Messages("orders"))
		r.send(acceptFirst)
		synctest.Wait()
		assert.Equal(t, []Settlement{{MessageID: "0", Outcome: amqpflow.Accepted}}, s.Settlements("orders"))
		assert.Equal(t, 1, s.Unsettled("orders"))
		r.send(&wire.End{})
		r.await(wire.CodeEnd)
		assert.Equal(t, []string{"1"}, bodies(t, s), "the session's end gives back the rest")
		bye(r)
	})
}

func TestLink_givesBackAfterADetachThatClosesOrFails(t *testing.T) {
	for name, d := range map[string]wire.Detach{
		"closed": {Closed: true},
		"failed": {Error: &wire.Error{Condition: "amqp:internal-error"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				r := withTwo(t, s, d)
				assert.Zero(t, s.Unsettled("orders"))
				assert.Equal(t, []string{"0", "1"}, bodies(t, s))
				r.send(acceptFirst) // crossed our detach for all that we know
				bye(r)
				assert.Empty(t, s.Settlements("orders"))
			})
		})
	}
}

func TestLink_isResumedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := withTwo(t, s, wire.Detach{})
		a := attachReceiver(3)
		a.Name = attachReceiver(0).Name
		a.Unsettled = wire.Map{
			{Key: []byte{0, 0, 0, 0}, Value: wire.Described{Descriptor: wire.CodeAccepted, Value: wire.List{}}},
			{Key: []byte{0, 0, 0, 1}},
		}
		r.send(a)
		var answer wire.Attach
		require.NoError(t, answer.Decode(r.await(wire.CodeAttach)))
		assert.Nil(t, answer.Unsettled, "nothing is unsettled here")
		assert.Len(t, s.Settlements("orders"), 1, "the outcome that the client had reached")
		assert.Equal(t, []string{"1"}, bodies(t, s))
		assert.Zero(t, s.Unsettled("orders"))
		f := linkFlow(1)
		f.NextIncomingID, f.Handle = wire.Some(2), wire.Some(3)
		r.send(f)
		again := r.awaitTransfer()
		assert.False(t, again.Resume)
		assert.Equal(t, []byte{0, 0, 0, 2}, again.DeliveryTag)
		bye(r)
	})
}

func TestLink_isResumedInTheOrderOfItsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(n)...))
		r := dialRaw(t, s).opened().receiving(n)
		a := attachReceiver(0)
		var want []string
		for i := range n {
			a.Unsettled = append(a.Unsettled, wire.Entry{
				Key: r.awaitTransfer().DeliveryTag, Value: wire.Described{Descriptor: wire.CodeRejected, Value: wire.List{}},
			})
			want = append(want, strconv.Itoa(i))
		}
		r.send(&wire.Detach{})
		r.awaitDetach()
		r.send(a)
		r.await(wire.CodeAttach)
		var got []string
		for _, m := range s.DeadLetters("orders") {
			got = append(got, string(m.GetData()))
		}
		assert.Equal(t, want, got)
		bye(r)
	})
}

func TestOutcomeIn_readsEveryOutcomeInEitherForm(t *testing.T) {
	for kind, code := range map[wire.StateKind]uint64{
		wire.StateAccepted: wire.CodeAccepted, wire.StateRejected: wire.CodeRejected,
		wire.StateReleased: wire.CodeReleased, wire.StateModified: wire.CodeModified,
	} {
		for _, descriptor := range []any{code, outcomeSymbol(kind)} {
			m := wire.Map{{Key: []byte("x")}, {Key: []byte{0, 0, 0, 7}, Value: wire.Described{Descriptor: descriptor, Value: wire.List{}}}}
			assert.Equal(t, kind, outcomeIn(m, 7).Kind)
			assert.Equal(t, wire.StateNone, outcomeIn(m, 8).Kind)
		}
	}
}

func TestLink_tellsAPublisherThatResumesWhatItHasNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().secondly()
		r.send(&wire.Detach{})
		r.awaitDetach()
		tag := first(0).DeliveryTag
		a := attachSender(0)
		a.RcvSettleMode, a.Unsettled = rcvSecond, wire.Map{{Key: tag}}
		r.send(a)
		var answer wire.Attach
		require.NoError(t, answer.Decode(r.await(wire.CodeAttach)))
		assert.Equal(t, wire.Map{{Key: tag, Value: wire.Described{Descriptor: wire.CodeAccepted, Value: wire.List{}}}}, answer.Unsettled)
		r.awaitFlow()
		resumed := first(1)
		resumed.DeliveryTag, resumed.Resume, resumed.Settled, resumed.HasSettled = tag, true, true, true
		resumed.State = wire.State{Kind: wire.StateAccepted}
		r.transfer(resumed, nil)
		synctest.Wait()
		require.NoError(t, s.Connections()[0].unsettled())
		again := first(2)
		again.DeliveryTag = tag // is free again
		r.transfer(again, hello)
		r.awaitDisposition()
		bye(r)
		assert.Equal(t, []string{"hello", "hello"}, bodies(t, s), "stored once, and the new one")
	})
}

// unsettled fails for a link that has something unsettled.
func (c Connection) unsettled() error {
	for _, ses := range c.Sessions {
		for _, l := range ses.Links {
			if l.Unsettled != 0 {
				return assert.AnError
			}
		}
	}
	return nil
}

func TestLink_isStolenByASecondAttachOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(1)...))
		dial := func() *amqp.Session { return connect(t, s, &amqp.ConnOptions{ContainerID: "same"}) }
		attach := func(ses *amqp.Session) *amqp.Receiver {
			rcv, err := ses.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Name: "in"})
			require.NoError(t, err)
			return rcv
		}
		one := attach(dial())
		receive(t, one)
		two := attach(dial())
		_, err := one.Receive(t.Context(), nil)
		var detached *amqp.LinkError
		require.ErrorAs(t, err, &detached)
		assert.Equal(t, amqp.ErrCondStolen, detached.RemoteErr.Condition)
		m := receive(t, two)
		require.NoError(t, two.AcceptMessage(t.Context(), m), "what the first held came back")
		attach(connect(t, s, nil)) // another container: another link
		ctx := t.Context()
		require.NoError(t, two.Close(ctx))
		assert.Len(t, s.attached, 1)
	})
}
