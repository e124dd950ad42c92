package amqptest_test

import (
	"context"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// Put, deliver, handle and settle 512 bytes, in process, over one subscription.
func BenchmarkServer_delivers(b *testing.B) {
	s := amqptest.NewServer()
	broker := amqpflow.New("amqp://localhost")
	amqpflow.Subscribe(broker, "orders", func(context.Context, *amqpflow.Message[[]byte]) error { return nil })
	require.NoError(b, s.Connect(b.Context(), broker))
	batch := make([]*amqp.Message, 100)
	for i := range batch {
		batch[i] = amqp.NewMessage(make([]byte, 512))
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%len(batch) == 0 {
			require.NoError(b, s.Put("orders", batch...))
		}
	}
	require.NoError(b, s.Idle(b.Context()))
	b.StopTimer()
	require.NoError(b, broker.Shutdown(b.Context()))
	require.NoError(b, s.Close())
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msgs/s")
}

// Publish 512 bytes with confirmation, as many at once as the publisher allows.
func BenchmarkServer_takes(b *testing.B) {
	s := amqptest.NewServer()
	broker := amqpflow.New("amqp://localhost")
	require.NoError(b, s.Connect(b.Context(), broker))
	publisher := broker.Publisher()
	body := make([]byte, 512)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		_, err := publisher.Send(b.Context(), "orders", body)
		require.NoError(b, err)
	}
	require.NoError(b, publisher.Flush(b.Context()))
	b.StopTimer()
	require.NoError(b, broker.Shutdown(b.Context()))
	require.NoError(b, s.Close())
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msgs/s")
}

// Starting a server and closing it, alone and with a client.
func BenchmarkServer_startsAndCloses(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, amqptest.NewServer().Close())
		}
	})
	b.Run("with a client", func(b *testing.B) {
		for b.Loop() {
			s := amqptest.NewServer()
			broker := amqpflow.New("amqp://localhost")
			require.NoError(b, s.Connect(b.Context(), broker))
			require.NoError(b, broker.Shutdown(b.Context()))
			require.NoError(b, s.Close())
		}
	})
}
