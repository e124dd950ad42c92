//go:build !race

package amqpflow_test

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// sink accepts every message of one sending link, a range for each read, and
// allocates nothing for it.
func sink(nc net.Conn) {
	buf, out := make([]byte, 256<<10), make([]byte, 0, 1024)
	var transfer wire.Transfer
	have := 0
	first, last, came := uint32(0), uint32(0), false
	for {
		n, err := nc.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		at := 0
		for have-at >= wire.FrameHeaderSize {
			size := int(binary.BigEndian.Uint32(buf[at:]))
			if have-at < size {
				break
			}
			body := buf[at+wire.FrameHeaderSize : at+size]
			if code, _, err := wire.PeekDescriptor(body); err == nil && code == wire.CodeTransfer && transfer.Decode(body) == nil {
				if last = transfer.DeliveryID.Value; !came {
					first, came = last, true
				}
			}
			at += size
		}
		have = copy(buf, buf[at:have])
		if !came {
			continue
		}
		d := wire.Disposition{Role: wire.RoleReceiver, First: first, Last: last, Settled: true, State: wire.State{Kind: wire.StateAccepted}}
		came = false
		out = d.Append(wire.BeginFrame(out[:0], wire.TypeAMQP, 0))
		wire.EndFrame(out, 0)
		if _, err := nc.Write(out); err != nil {
			return
		}
	}
}

// sinkBehind connects b to a peer that becomes a sink once the link to "out"
// is attached. What it returns waits for the peer's end.
func sinkBehind(t *testing.T, b *amqpflow.Broker, client, server net.Conn) func() {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		p := &peer{t: t, nc: server, taken: map[uint64]func(frame) bool{}, ended: map[string]bool{}, sessions: map[uint16]*peerSession{},
			open: wire.Open{ContainerID: "sink", MaxFrameSize: 1 << 20, ChannelMax: 10, Properties: wire.Map{
				{Key: wire.Symbol("product"), Value: "apache-activemq-artemis"}, // refuses gently: nothing is probed
			}},
			wake: make(chan struct{}, 1), credit: 1 << 30}
		for {
			f, err := readFrame(server) // unbuffered: what follows the attach is the sink's
			if err != nil {
				return
			}
			p.mu.Lock()
			p.note(f)
			p.mu.Unlock()
			p.answer(f)
			if _, err = server.Write(p.out); err != nil {
				return
			}
			p.out = nil
			if _, attached := f.perf.(*wire.Attach); attached {
				sink(server)
				return
			}
		}
	})
	require.NoError(t, b.ConnectInProcess(context.Background(), func(context.Context) (net.Conn, error) { return client, nil }))
	return wg.Wait
}

func TestSend_allocatesAtMostThreeTimes(t *testing.T) {
	const warm, measured = 5_000, 50_000
	client, server := net.Pipe()
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
	wait := sinkBehind(t, b, client, server)
	var value any = make([]byte, 512)
	ctx, pub := within(t, time.Minute), b.Publisher()
	sendMany := func(n int) {
		for range n {
			if _, err := pub.Send(ctx, "out", value); err != nil {
				require.NoError(t, err)
			}
		}
		require.NoError(t, pub.Flush(ctx))
	}
	sendMany(warm)
	goroutines := runtime.NumGoroutine()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sendMany(measured)
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / measured
	bytes := float64(after.TotalAlloc-before.TotalAlloc) / measured
	t.Logf("%.3f allocations, %.0f bytes a Send", allocs, bytes)
	assert.LessOrEqual(t, allocs, 3.005) // the runtime has some of its own
	assert.LessOrEqual(t, bytes, 300.0)
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "no goroutine a message")

	_ = client.Close()
	_ = b.Shutdown(within(t, 10*time.Second))
	wait()
}
