package amqptest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// dynamicReceiver is a manual receiver of a node of its own.
func dynamicReceiver(t *testing.T, ses *amqp.Session, credit uint32) *amqp.Receiver {
	t.Helper()
	rcv, err := ses.NewReceiver(t.Context(), "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: -1})
	require.NoError(t, err)
	if credit > 0 {
		require.NoError(t, rcv.IssueCredit(credit))
	}
	return rcv
}

func TestDynamic_carriesReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		asking, answering := connect(t, s, nil), connect(t, s, nil)
		replies := dynamicReceiver(t, asking, 1)
		request := text("ask")
		request.Properties.ReplyTo = new(replies.Address())
		require.NoError(t, sender(t, asking, "service", nil).Send(t.Context(), request, nil))

		service := manual(t, answering, "service", 1)
		m := receive(t, service)
		require.NoError(t, sender(t, answering, *m.Properties.ReplyTo, nil).Send(t.Context(), text("answer"), nil))
		require.NoError(t, service.AcceptMessage(t.Context(), m))

		answer := receive(t, replies)
		assert.Equal(t, "answer", string(answer.GetData()))
		require.NoError(t, replies.AcceptMessage(t.Context(), answer))
		require.NoError(t, s.Idle(t.Context()))
	})
}

func TestDynamic_isNamedOnceAndDeletedWithItsLink(t *testing.T) {
	for name, lose := range map[string]func(c *amqp.Conn, ses *amqp.Session, rcv *amqp.Receiver) error{
		"link":       func(_ *amqp.Conn, _ *amqp.Session, rcv *amqp.Receiver) error { return rcv.Close(context.Background()) },
		"session":    func(_ *amqp.Conn, ses *amqp.Session, _ *amqp.Receiver) error { return ses.Close(context.Background()) },
		"connection": func(c *amqp.Conn, _ *amqp.Session, _ *amqp.Receiver) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				c, ses := connectBoth(t, s, nil)
				rcv, sibling := dynamicReceiver(t, ses, 0), dynamicReceiver(t, connect(t, s, nil), 0)
				node := rcv.Address()
				require.NotEmpty(t, node)
				assert.NotEqual(t, sibling.Address(), node)
				snd := sender(t, connect(t, s, nil), node, nil)
				require.NoError(t, snd.Send(t.Context(), text("0"), nil))
				require.Len(t, s.Messages(amqpflow.Raw(node)), 1)

				require.NoError(t, lose(c, ses, rcv))
				synctest.Wait()
				err := snd.Send(t.Context(), text("1"), nil)
				assert.Equal(t, amqp.ErrCondResourceDeleted, conditionOf(t, err))
				_, err = connect(t, s, nil).NewSender(t.Context(), node, nil)
				assert.Equal(t, amqp.ErrCondNotFound, conditionOf(t, err))
				assert.Nil(t, s.Messages(amqpflow.Raw(node)))
				assert.Len(t, s.nodes, 1, "the sibling's")
			})
		})
	}
}

// A node lives as long as the policy says that its attach asked for.
func TestDynamic_keepsItsLifetimePolicy(t *testing.T) {
	for _, test := range []struct {
		descriptor                         any
		life                               uint64 // as it is answered
		afterLink, afterSender, afterEmpty bool   // is it there?
	}{
		{nil, 0x2b, false, false, false},
		{uint64(0x2b), 0x2b, false, false, false},
		{wire.Symbol("amqp:delete-on-no-links:list"), 0x2c, true, false, false},
		{uint64(0x2d), 0x2d, true, true, false},
		{uint64(0x2e), 0x2e, true, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil)
			r := dialRaw(t, s).opened()
			a := attachReceiver(0)
			*a.Source = wire.Source{Dynamic: true}
			if test.descriptor != nil {
				policy := wire.Described{Descriptor: test.descriptor, Value: wire.List{}}
				a.Source.DynamicNodeProperties = wire.Map{{Key: wire.Symbol("lifetime-policy"), Value: policy}}
			}
			r.send(a)
			var answer wire.Attach
			require.NoError(t, answer.Decode(r.await(wire.CodeAttach)))
			require.True(t, answer.Source.Dynamic)
			policy := answer.Source.DynamicNodeProperties.Get(wire.Symbol("lifetime-policy"))
			assert.Equal(t, test.life, policy.(wire.Described).Descriptor)
			node := answer.Source.Address

			ses := connect(t, s, nil)
			snd := sender(t, ses, node, nil)
			require.NoError(t, snd.Send(t.Context(), text("0"), nil))
			there := func() bool { synctest.Wait(); return s.nodes[node] != nil }
			require.True(t, there())
			r.send(&wire.Detach{Closed: true})
			r.awaitDetach()
			assert.Equal(t, test.afterLink, there(), "%v: its link is gone", test.descriptor)
			_ = snd.Close(t.Context()) // it may have been closed with the node
			assert.Equal(t, test.afterSender, there(), "%v: the other link is gone", test.descriptor)
			if test.afterSender {
				rcv := manual(t, ses, node, 1)
				_ = rcv.AcceptMessage(t.Context(), receive(t, rcv)) // the node may go before it returns
				_ = rcv.Close(t.Context())                          // it may have been closed with the node
			}
			assert.Equal(t, test.afterEmpty, there(), "%v: its message is gone", test.descriptor)
			r.send(&wire.Close{})
			r.await(wire.CodeClose)
		})
	}
}

func TestDynamic_asATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd := sender(t, ses, "", &amqp.SenderOptions{DynamicAddress: true})
		require.NotEmpty(t, snd.Address())
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		rcv := manual(t, ses, snd.Address(), 1)
		assert.Equal(t, "0", receive(t, rcv).Properties.MessageID)
	})
}
