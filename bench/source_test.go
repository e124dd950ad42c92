package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// startTestSource serves the source on a loopback port within the test.
func startTestSource(t *testing.T) (context.Context, string) {
	t.Helper()
	l, err := listen()
	require.NoError(t, err)
	src := newSource()
	src.running.Go(func() { src.serve(l, nil) })
	t.Cleanup(func() {
		assert.NoError(t, l.Close())
		src.running.Wait() // every connection is closed: nothing hangs
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx, "amqp://" + l.Addr().String()
}

func TestSource_feedsAGoAMQPReceiver(t *testing.T) {
	ctx, url := startTestSource(t)
	for _, s := range []scenario{
		{name: "bytes", credit: 256, warm: 1, count: 10_000},
		{name: "json", credit: 256, json: true, warm: 1, count: 10_000},
		{name: "credit 1", credit: 1, warm: 1, count: 1_000},
		{name: "credit 1000", credit: 1000, warm: 1, count: 10_000},
	} {
		t.Run(s.name, func(t *testing.T) {
			node := map[bool]string{false: nodeBytes, true: nodeJSON}[s.json]
			m := newMeter(s.warm, s.count)
			require.NoError(t, rawSide{}.consume(ctx, place{url: url, node: node}, s, m))
			assert.Positive(t, m.sample().rate)
		})
	}
}

func TestSource_neverExceedsTheCredit(t *testing.T) {
	ctx, url := startTestSource(t)
	conn, session, err := place{url: url}.dial(ctx)
	require.NoError(t, err)
	receiver, err := session.NewReceiver(ctx, nodeBytes, &amqp.ReceiverOptions{Credit: -1})
	require.NoError(t, err)
	for _, credit := range []uint32{3, 2} {
		require.NoError(t, receiver.IssueCredit(credit))
		for range credit {
			_, err := receiver.Receive(ctx, nil)
			require.NoError(t, err)
		}
		// The answer comes behind anything that was sent before it.
		require.NoError(t, receiver.DrainCredit(ctx, nil))
		assert.Nil(t, receiver.Prefetched(), "one message too many")
	}
	require.NoError(t, conn.Close())
}

func TestSource_confirmsAGoAMQPSender(t *testing.T) {
	ctx, url := startTestSource(t)
	m := newMeter(1, 1_000)
	require.NoError(t, rawSide{}.publish(ctx, place{url: url, node: "any"}, scenario{warm: 1, count: 1_000}, m))
	assert.Positive(t, m.sample().p50)
}

// More than one grant of credit, unconfirmed sends in flight.
func TestSource_confirmsPipelinedSends(t *testing.T) {
	ctx, url := startTestSource(t)
	conn, session, err := place{url: url}.dial(ctx)
	require.NoError(t, err)
	b := brokerPeer{session: session}
	require.NoError(t, b.preload(ctx, place{node: "any"}, scenario{count: sinkCredit + 1_000}))
	require.NoError(t, conn.Close())
}

func TestSource_acceptsPLAINAndANONYMOUS(t *testing.T) {
	ctx, url := startTestSource(t)
	for _, sasl := range []amqp.SASLType{amqp.SASLTypeAnonymous(), amqp.SASLTypePlain("user", "password")} {
		conn, err := amqp.Dial(ctx, url, &amqp.ConnOptions{SASLType: sasl})
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}

func TestSource_sendsEveryKey(t *testing.T) {
	ctx, url := startTestSource(t)
	conn, session, err := place{url: url}.dial(ctx)
	require.NoError(t, err)
	receiver, err := session.NewReceiver(ctx, nodeBytes, &amqp.ReceiverOptions{Credit: batchSize})
	require.NoError(t, err)
	keys := map[byte]struct{}{}
	for range batchSize {
		msg, err := receiver.Receive(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, checkSize(msg.GetData()))
		keys[msg.GetData()[0]] = struct{}{}
	}
	assert.Len(t, keys, batchSize)
	require.NoError(t, conn.Close())
}

func TestSourceLink_patchesIDsOnly(t *testing.T) {
	payloads := [][]byte{encoded(request("a")), encoded(request("b"))}
	l := &sourceLink{handle: 5, credit: 3}
	l.load(7, payloads)
	s := &sourceSession{nextOutgoing: 1<<32 - 1, window: 2}
	batch := s.transfers(l)
	require.Len(t, batch, 2*l.stride, "the window is smaller than the credit")
	for i, want := range []uint32{1<<32 - 1, 0} {
		frame := batch[i*l.stride : (i+1)*l.stride]
		h, err := wire.ParseFrameHeader(frame)
		require.NoError(t, err)
		assert.Equal(t, wire.FrameHeader{Size: uint32(l.stride), DOff: 2, Channel: 7}, h)
		var got wire.Transfer
		require.NoError(t, got.Decode(frame[wire.FrameHeaderSize:]))
		assert.Equal(t, uint32(5), got.Handle)
		assert.Equal(t, wire.Some(want), got.DeliveryID)
		assert.Equal(t, binary.BigEndian.AppendUint32(nil, want), got.DeliveryTag)
		assert.Equal(t, payloads[i], got.Payload, "they take turns")
	}
	assert.Empty(t, s.transfers(l), "the window is used up")
	s.window = 5
	assert.Len(t, s.transfers(l), l.stride, "one credit was left")
	assert.Empty(t, s.transfers(l))
}

func TestSourceProcess_endsWithItsStdin(t *testing.T) {
	in, closeIn := io.Pipe()
	out, printed := io.Pipe()
	ended := make(chan error, 1)
	src := newSource() // only for its WaitGroup: the goroutine has an owner
	src.running.Go(func() { ended <- runSourceProcess(in, printed) })
	var address sourceAddress
	require.NoError(t, json.NewDecoder(out).Decode(&address))
	conn, err := net.Dial("tcp", address.Plain)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, closeIn.Close())
	require.NoError(t, <-ended)
	src.running.Wait()
}
