package amqptest

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestServer_readsAddressesAsTheLibraryDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		for node, addrs := range map[string][]amqpflow.Address{
			"orders":         {"orders", "queue:orders", "raw:orders", amqpflow.Queue("orders")},
			"/queues/orders": {"/queues/orders", "raw:/queues/orders"},
		} {
			for _, addr := range addrs {
				require.NoError(t, s.Put(addr, text("0")))
				rcv := manual(t, ses, node, 1)
				require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
				require.NoError(t, rcv.Close(t.Context()))
			}
			assert.Len(t, s.Settlements(addrs[0]), len(addrs))
		}
		require.ErrorContains(t, s.Put("topic:orders", text("0")), "amqp:not-allowed: the node is a queue")
		require.Error(t, s.Put("", text("0")))
		assert.Nil(t, s.Messages("topic:prices"))
		assert.Nil(t, s.Messages("never seen"))
	})
}

func TestServer_putStoresAllOrNone(t *testing.T) {
	s := NewServer()
	bad := &amqp.Message{Value: struct{}{}}
	require.ErrorContains(t, s.Put("orders", text("0"), bad), "message 1")
	require.ErrorContains(t, s.Put("orders", text("0"), nil), "message 1 is nil")
	assert.Empty(t, s.Messages("orders"))
	require.NoError(t, s.Close())
}

func TestServer_namesMessagesByAnyKindOfID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		id := amqp.UUID{0: 0x12, 15: 0x34}
		for _, v := range []any{"text", uint64(1 << 63), id, []byte{0xca, 0xfe}, nil} {
			m := text("")
			m.Properties.MessageID = v
			require.NoError(t, s.Put("orders", m))
		}
		rcv := manual(t, connect(t, s, nil), "orders", 5)
		var got []string
		for range 5 {
			require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
		}
		synctest.Wait()
		for _, settled := range s.Settlements("orders") {
			got = append(got, settled.MessageID)
		}
		assert.Equal(t, []string{"text", "9223372036854775808", id.String(), "cafe", ""}, got)
	})
}

func TestServer_returnsWhatGoAMQPCannotDecodeAsBytes(t *testing.T) {
	s := NewServer()
	payload, err := wire.AppendAMQPValue(nil, wire.Char('x'))
	require.NoError(t, err)
	var sections wire.Sections
	m, err := newMessage(&sections, 0, payload, generic)
	require.NoError(t, err)
	s.makeNode("orders", kindQueue).publish(m)
	ms := s.Messages("orders")
	require.Len(t, ms, 1)
	assert.Contains(t, string(ms[0].GetData()), string(payload))
	require.NoError(t, s.Close())
}

func TestBodies_decodesByType(t *testing.T) {
	type order struct{ ID int }
	s := NewServer()
	defer func() { assert.NoError(t, s.Close()) }()
	require.NoError(t, s.Put("orders",
		&amqp.Message{Data: [][]byte{[]byte(`{"ID":`), []byte(`7}`)}},
		&amqp.Message{Value: `{"ID":8}`},
		&amqp.Message{Value: []byte(`{"ID":9}`)}))
	typed, err := Bodies[order](s, "orders")
	require.NoError(t, err)
	assert.Equal(t, []order{{7}, {8}, {9}}, typed)
	raws, err := Bodies[json.RawMessage](s, "orders")
	require.NoError(t, err)
	assert.Equal(t, `{"ID":7}`, string(raws[0]))
	octets, err := Bodies[[]byte](s, "orders")
	require.NoError(t, err)
	assert.Equal(t, `{"ID":8}`, string(octets[1]))

	require.NoError(t, s.Put("odd", &amqp.Message{Value: int32(1)}))
	_, err = Bodies[string](s, "odd")
	require.ErrorContains(t, err, `bodies of "odd": message 0: an amqp-value of type int32`)
	require.NoError(t, s.Put("list", &amqp.Message{Sequence: [][]any{{int32(1)}}}))
	_, err = Bodies[string](s, "list")
	require.ErrorContains(t, err, "amqp-sequence")
	require.NoError(t, s.Put("bad", amqp.NewMessage([]byte("{"))))
	_, err = Bodies[order](s, "bad")
	var syntax *json.SyntaxError
	require.ErrorAs(t, err, &syntax)
	_, err = Bodies[string](s, "topic:")
	assert.Error(t, err)
}

func TestServer_idleWaitsForTheLastSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Idle(t.Context()), "nothing is there")
		ses := connect(t, s, nil)
		require.NoError(t, s.Put("orders", numbered(2)...))
		isIdle := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.Idle(ctx)
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			return err == nil
		}
		assert.False(t, isIdle(), "two are queued")
		rcv := manual(t, ses, "orders", 2)
		a, b := receive(t, rcv), receive(t, rcv)
		require.NoError(t, rcv.RejectMessage(t.Context(), a, nil))
		assert.False(t, isIdle(), "one is unsettled")
		began := time.Now()
		later := time.AfterFunc(3*time.Second, func() { _ = rcv.AcceptMessage(t.Context(), b) })
		defer later.Stop()
		require.NoError(t, s.Idle(t.Context()))
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestServer_idleWaitsForTheRestOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened()
		out := attachSender(0)
		out.SndSettleMode = sndSettled
		r.send(out)
		r.awaitFlow()
		tr := first(0)
		tr.More, tr.Settled, tr.HasSettled = true, true, true
		r.transfer(tr, hello)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Idle(ctx), context.DeadlineExceeded)
		r.transfer(wire.Transfer{Aborted: true}, nil)
		require.NoError(t, s.Idle(t.Context()))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_idleEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		require.NoError(t, s.Put("orders", text("0")))
		later := time.AfterFunc(time.Second, func() { _ = s.Close() })
		defer later.Stop()
		require.ErrorIs(t, s.Idle(t.Context()), ErrClosed)
	})
}

// idle looks once.
func (s *Server) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleLocked()
}

func TestServer_isNotIdleWhileSomethingIsToBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(1)...))
		r := dialRaw(t, s).opened()
		in := attachReceiver(0)
		in.SndSettleMode = sndSettled
		r.send(in, linkFlow(1))
		synctest.Wait()
		assert.Empty(t, s.Messages("orders"))
		assert.False(t, s.idle(), "the client has read nothing")
		r.awaitTransfer()
		require.NoError(t, s.Idle(t.Context()))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_isNotIdleWithinAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		delivery := first(0)
		delivery.Settled, delivery.HasSettled = true, true
		b := frameOf(wire.TypeAMQP, 0, &delivery, hello)
		r.bytes(b[:20])
		synctest.Wait()
		assert.False(t, s.idle())
		r.bytes(b[20:])
		synctest.Wait()
		assert.Equal(t, []string{"hello"}, bodies(t, s))
		bye(r)
	})
}
