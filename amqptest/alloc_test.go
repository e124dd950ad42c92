//go:build !race

package amqptest_test

import (
	"runtime"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// inUse is how many bytes of the heap and of stacks are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestServerAlloc_ofAQueuedMessage(t *testing.T) {
	const messages, limit = 100_000, 1228 // 1.2 KiB
	s := amqptest.NewServer()
	m := amqp.NewMessage(make([]byte, 512))
	m.Properties = &amqp.MessageProperties{MessageID: "12345678"}
	before := inUse()
	for range messages {
		require.NoError(t, s.Put("orders", m))
	}
	each := (inUse() - before) / messages
	t.Logf("%d bytes each", each)
	assert.LessOrEqual(t, each, int64(limit))
	require.NoError(t, s.Close())
}

func TestServerAlloc_ofAHundredServersWithAClientEach(t *testing.T) {
	const limit = 64 << 20
	before := inUse()
	var servers []*amqptest.Server
	var brokers []*amqpflow.Broker
	for range 100 {
		s, b := amqptest.NewServer(), amqpflow.New("amqp://localhost")
		require.NoError(t, s.Connect(t.Context(), b))
		servers, brokers = append(servers, s), append(brokers, b)
	}
	used := inUse() - before
	t.Logf("%d KiB", used>>10)
	assert.LessOrEqual(t, used, int64(limit))
	for i, s := range servers {
		require.NoError(t, brokers[i].Shutdown(t.Context()))
		require.NoError(t, s.Close())
	}
}
