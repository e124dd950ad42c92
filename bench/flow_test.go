package main

import (
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// Both sides, each kind of work.
func TestSides_doTheWorkOfEveryScenario(t *testing.T) {
	ctx, url := startTestSource(t)
	for _, s := range []scenario{
		{name: "bytes", credit: 256, warm: 1, count: 10_000},
		{name: "json", credit: 10, json: true, warm: 1, count: 1_000},
		{name: "workers", credit: 256, workers: 4, warm: 1, count: 10_000},
		{name: "lanes", credit: 256, lanes: 16, warm: 1, count: 10_000},
		{name: "batch", credit: 256, batch: 100, warm: 100, count: 10_000},
		{name: "publish", work: publish, warm: 1, count: 1_000},
		{name: "pipeline", work: pipeline, inFlight: 128, warm: 128, count: 10_000},
		{name: "pipeline of one", work: pipeline, inFlight: 1, warm: 1, count: 1_000},
		{name: "reply", work: reply, workers: 1, credit: 256, warm: 1, count: 1_000},
		{name: "replies", work: reply, workers: 32, credit: 256, warm: 1, count: 5_000},
	} {
		for name, side := range map[string]side{"raw": rawSide{}, "flow": flowSide{}} {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				p, err := (&sourcePeer{}).place(ctx, s)
				require.NoError(t, err)
				p.url = url
				m := newMeter(s.warm, s.count)
				require.NoError(t, do(ctx, side, p, s, m))
				assert.Positive(t, m.sample().rate)
			})
		}
	}
}

// What the sides send differs in nothing but the random message-id, and both
// answer and accept every request.
func TestSides_sendTheSameMessages(t *testing.T) {
	const count = 5
	for _, s := range []scenario{
		{name: "publish", work: publish, count: count},
		{name: "pipeline", work: pipeline, inFlight: 2, count: count},
		{name: "reply", work: reply, workers: 1, credit: 10, count: count},
	} {
		t.Run(s.name, func(t *testing.T) {
			raw, flow := sentBy(t, rawSide{}, s), sentBy(t, flowSide{}, s)
			require.Len(t, raw, count)
			assert.Equal(t, raw, flow)
		})
	}
}

// sentBy returns what a side sends to a broker in memory, without message-ids.
func sentBy(t *testing.T, side side, s scenario) [][]byte {
	t.Helper()
	server := amqptest.NewServer()
	p := place{url: server.URL(), queue: "work", node: "work", reply: "work-replies"}
	to := "work"
	if s.work == reply {
		to = "work-replies"
		for range s.count {
			m := request(p.reply)
			m.Properties.MessageID = uint64(7)
			require.NoError(t, server.Put("work", m))
		}
	}
	// The first message starts the clock, so that the last but one ends it.
	require.NoError(t, do(t.Context(), side, p, s, newMeter(1, s.count-1)))
	if s.work == reply {
		assert.Empty(t, server.Messages("work"), "every request is accepted")
	}
	var sent [][]byte
	for _, m := range server.Messages(amqpflow.Queue(to)) {
		require.IsType(t, amqp.UUID{}, m.Properties.MessageID)
		m.Properties.MessageID = nil
		b, err := m.MarshalBinary()
		require.NoError(t, err)
		sent = append(sent, b)
	}
	require.NoError(t, server.Close())
	return sent
}
