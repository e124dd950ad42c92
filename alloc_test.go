//go:build !race

package amqpflow_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// source is a peer that, once a link is attached, writes pre-encoded transfers
// as credit allows and allocates nothing for it.
type source struct {
	nc     net.Conn
	frame  []byte // one transfer
	id     int    // where its delivery-id stands in frame
	batch  []byte // what is written at once
	total  uint32
	credit chan uint32 // capacity 1: the highest delivery count with credit, the latest
	wg     sync.WaitGroup
}

func newSource(t *testing.T, nc net.Conn, channel uint16, handle uint32, payload []byte, total int) *source {
	t.Helper()
	s := &source{nc: nc, total: uint32(total), credit: make(chan uint32, 1)}
	const mark = 0x7eadbeef
	transfer := wire.Transfer{
		Handle: handle, DeliveryID: wire.Some(mark), DeliveryTag: []byte{1, 2, 3, 4}, MessageFormat: wire.Some(0),
	}
	s.frame = append(transfer.Append(wire.BeginFrame(nil, wire.TypeAMQP, channel)), payload...)
	wire.EndFrame(s.frame, 0)
	for i := range s.frame {
		if binary.BigEndian.Uint32(s.frame[i:]) == mark {
			s.id = i
			break
		}
	}
	require.NotZero(t, s.id)
	s.batch = make([]byte, 0, 64<<10)
	return s
}

func (s *source) run() {
	s.wg.Go(s.read)
	s.wg.Go(s.write)
}

// read looks at the client's flows, and at nothing else.
func (s *source) read() {
	defer close(s.credit)
	buf := make([]byte, 64<<10)
	var flow wire.Flow
	have := 0
	for {
		n, err := s.nc.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		at := 0
		for have-at >= 8 {
			size := int(binary.BigEndian.Uint32(buf[at:]))
			if have-at < size {
				break
			}
			if isFlow(buf[at+8:at+size]) && flow.Decode(buf[at+8:at+size]) == nil && flow.LinkCredit.Set {
				limit := flow.DeliveryCount.Value + flow.LinkCredit.Value
				select {
				case <-s.credit:
				default:
				}
				s.credit <- limit
			}
			at += size
		}
		have = copy(buf, buf[at:have])
	}
}

func isFlow(body []byte) bool {
	code, _, err := wire.PeekDescriptor(body)
	return err == nil && code == wire.CodeFlow
}

func (s *source) write() {
	next := uint32(0)
	for limit := range s.credit {
		for next < min(limit, s.total) {
			s.batch = s.batch[:0]
			for next < min(limit, s.total) && len(s.batch)+len(s.frame) <= cap(s.batch) {
				start := len(s.batch)
				s.batch = append(s.batch, s.frame...)
				binary.BigEndian.PutUint32(s.batch[start+s.id:], next)
				next++
			}
			if _, err := s.nc.Write(s.batch); err != nil {
				return
			}
		}
	}
}

// handOver makes a peer stop where a source begins: after the attach.
func handOver(t *testing.T, b *amqpflow.Broker, client, server net.Conn, payload []byte, total int) *source {
	t.Helper()
	connected := make(chan error, 1)
	go func() {
		connected <- b.ConnectInProcess(context.Background(), func(context.Context) (net.Conn, error) { return client, nil })
	}()
	p := &peer{t: t, nc: server, taken: map[uint64]func(frame) bool{}, ended: map[string]bool{}, sessions: map[uint16]*peerSession{},
		open: wire.Open{ContainerID: "source", MaxFrameSize: 1 << 20, ChannelMax: 10}, wake: make(chan struct{}, 1)}
	for {
		f, err := readFrame(server) // unbuffered: what follows the attach is the source's
		require.NoError(t, err)
		p.mu.Lock()
		p.note(f)
		p.mu.Unlock()
		p.answer(f)
		_, err = server.Write(p.out)
		require.NoError(t, err)
		p.out = nil
		if a, ok := f.perf.(*wire.Attach); ok {
			s := newSource(t, server, f.channel, a.Handle, payload, total)
			s.run()
			require.NoError(t, <-connected)
			return s
		}
	}
}

func TestSubscription_allocatesAtMostTwicePerDelivery(t *testing.T) {
	const warm, measured = 5_000, 30_000
	payload := (&wire.Header{Durable: true}).Append(nil)
	payload = wire.AppendData(payload, make([]byte, 512))
	client, server := net.Pipe()
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
	var handled atomic.Int64
	warmed, resume, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[[]byte]) error {
		if len(m.Body) != 512 {
			t.Errorf("a body of %d octets", len(m.Body))
		}
		switch handled.Add(1) {
		case warm:
			close(warmed)
			<-resume
		case warm + measured:
			close(done)
		}
		return nil
	})
	s := handOver(t, b, client, server, payload, warm+measured)
	<-warmed
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	close(resume)
	<-done
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / measured
	bytes := float64(after.TotalAlloc-before.TotalAlloc) / measured
	t.Logf("%.3f allocations, %.0f bytes a delivery", allocs, bytes)
	assert.LessOrEqual(t, allocs, 2.005) // the runtime has some of its own
	assert.LessOrEqual(t, bytes, 900.0)

	_ = client.Close()
	_ = b.Shutdown(within(t, 10*time.Second))
	_, _ = io.Copy(io.Discard, server)
	s.wg.Wait()
}

// One idle subscription with one worker: its goroutines, go-amqp's included,
// and its heap besides what go-amqp takes.
func TestSubscription_idleCostsLittle(t *testing.T) {
	const subscriptions = 50
	const goAMQP, ours = 125 << 10, 64 << 10
	p := newPeer(t)
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: -1})
	p.connect(b)
	require.NoError(t, b.Subscribe("first", accepting).Attached(within(t, 10*time.Second)))
	settle := func() (goroutines int, heap uint64) {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	goroutines, heap := settle()
	subs := make([]*amqpflow.Subscription, subscriptions)
	for i := range subs {
		subs[i] = b.Subscribe(amqpflow.Queue("idle"), accepting)
	}
	for _, s := range subs {
		require.NoError(t, s.Attached(within(t, 10*time.Second)))
	}
	goroutinesAfter, heapAfter := settle()
	perGoroutine := float64(goroutinesAfter-goroutines) / subscriptions
	perHeap := (float64(heapAfter) - float64(heap)) / subscriptions
	t.Logf("%.2f goroutines, %.0f KiB of heap a subscription", perGoroutine, perHeap/1024)
	assert.LessOrEqual(t, perGoroutine, 4.0)
	assert.LessOrEqual(t, perHeap, float64(goAMQP+ours))
	shutdown(t, b)
}
