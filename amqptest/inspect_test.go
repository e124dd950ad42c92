package amqptest

import (
	"encoding/json"
	"testing"
	"testing/synctest"

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
