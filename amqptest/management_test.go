package amqptest

import (
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Whatever is asked of the management node, it answers or refuses.
func FuzzManagement(f *testing.F) {
	for _, seed := range []struct {
		method, path string
		body         any
	}{
		{"PUT", "/queues/orders", queueOf("quorum", map[string]any{"x-max-length": int64(1), "x-dead-letter-exchange": "amq.fanout"})},
		{"GET", "/queues/orders", amqp.Null{}},
		{"DELETE", "/queues/orders/messages", amqp.Null{}},
		{"PUT", "/exchanges/mine", map[string]any{"type": "topic"}},
		{"POST", "/bindings", map[string]any{"source": "amq.topic", "destination_queue": "orders", "binding_key": "#.a.*"}},
		{"GET", "/bindings?src=amq.topic&dstq=orders&key=k", amqp.Null{}},
		{"DELETE", "/bindings/src=amq.topic;dstq=orders;key=k;args=", amqp.Null{}},
	} {
		payload, err := (&amqp.Message{
			Properties: &amqp.MessageProperties{To: &seed.path, Subject: &seed.method}, Value: seed.body,
		}).MarshalBinary()
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		s := NewServer(&Options{Dialect: amqpflow.DialectRabbitMQ})
		require.NoError(t, s.Declare("orders", &NodeOptions{Bind: []string{"amq.topic/k"}}))
		var sections wire.Sections
		m, err := newMessage(&sections, 0, payload, rabbitMQ)
		if err != nil {
			return
		}
		r := requestOf(m)
		if r == nil {
			return
		}
		if status, body := s.handle(r); status != "" && body != nil {
			_, _ = s.encode([]*amqp.Message{{Value: body}}) // fails for text that is not UTF-8: the session is ended
		}
		require.NoError(t, s.Close())
	})
}
