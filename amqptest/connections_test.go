package amqptest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestServer_describesItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		assert.Empty(t, s.Connections())
		dialRaw(t, s) // says nothing, and so is none
		c, ses := connectBoth(t, s, &amqp.ConnOptions{
			ContainerID: "first", HostName: "shop", IdleTimeout: 8 * time.Second, MaxFrameSize: 4096,
			Properties: map[string]any{"product": "test"}, SASLType: amqp.SASLTypePlain("alice", "x"),
		})
		_, other := connectBoth(t, s, &amqp.ConnOptions{ContainerID: "second"})
		snd, err := ses.NewSender(t.Context(), "orders", &amqp.SenderOptions{Name: "out"})
		require.NoError(t, err)
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		require.NoError(t, snd.Send(t.Context(), text("1"), nil))
		rcv, err := ses.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Name: "in", Credit: -1})
		require.NoError(t, err)
		require.NoError(t, rcv.IssueCredit(5))
		receive(t, rcv)
		synctest.Wait()

		open := s.Connections()
		require.Len(t, open, 2)
		assert.Equal(t, Connection{
			ContainerID: "first", Hostname: "shop", User: "alice", RemoteAddr: "pipe",
			MaxFrameSize: 4096, ChannelMax: 65535, IdleTimeout: 4 * time.Second, // go-amqp announces half of its own
			Properties: map[string]any{"product": "test"},
			Sessions: []Session{{Links: []Link{
				{Name: "out", Address: "orders", Credit: linkCredit - 2},
				{Name: "in", Handle: 1, Address: "orders", Receiver: true, Credit: 3, Unsettled: 2},
			}}},
		}, open[0])
		assert.Equal(t, "second", open[1].ContainerID)

		manual(t, other, "orders", 4)
		synctest.Wait()
		assert.Equal(t, 7, s.Credit("orders"))
		assert.Equal(t, 2, s.Unsettled("orders"))
		assert.Zero(t, s.Credit("prices"))
		assert.Zero(t, s.Unsettled("prices"))
		assert.Zero(t, s.Credit(""), "no address")
		require.NoError(t, c.Close())
		synctest.Wait()
		assert.Equal(t, 2, s.Credit("orders"), "two came back and went to the other")
		require.Len(t, s.Connections(), 1)
	})
}

func TestServer_countsWhatAPublisherHasStillToSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().secondly()
		assert.Equal(t, 1, s.Connections()[0].Sessions[0].Links[0].Unsettled)
		r.send(&wire.Disposition{Role: wire.RoleSender, Settled: true})
		synctest.Wait()
		assert.Zero(t, s.Connections()[0].Sessions[0].Links[0].Unsettled)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}
