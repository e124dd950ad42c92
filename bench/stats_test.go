package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpread_isMedianAndRange(t *testing.T) {
	assert.Equal(t, spread{2, 1, 9}, spreadOf([]float64{9, 1, 2}), "odd")
	assert.Equal(t, spread{2.5, 1, 9}, spreadOf([]float64{9, 2, 1, 3}), "even")
	assert.Equal(t, spread{4, 4, 4}, spreadOf([]float64{4}), "one")
}

func TestSpread_leavesItsInputInOrder(t *testing.T) {
	values := []float64{3, 1, 2}
	spreadOf(values)
	assert.Equal(t, []float64{3, 1, 2}, values)
}

func TestPercentile_isTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	assert.Equal(t, 50, percentile(hundred, 50))
	assert.Equal(t, 99, percentile(hundred, 99))
	assert.Equal(t, 100, percentile(hundred, 100))
	assert.Equal(t, 1, percentile(hundred, 0))
	assert.Equal(t, 7, percentile([]int{7}, 99))
}

// A machine that is slower in one round slows both sides of that round: the
// paired ratio must not see it.
func TestRatios_arePairedByRound(t *testing.T) {
	pairs := []pair{
		{raw: sample{rate: 100}, flow: sample{rate: 300}},
		{raw: sample{rate: 10}, flow: sample{rate: 30}},
		{raw: sample{rate: 50}, flow: sample{rate: 100}},
	}
	assert.Equal(t, spread{3, 2, 3}, ratios(pairs, rateOf))
}

func TestResult_hasLatencyOnlyForPublishing(t *testing.T) {
	pairs := []pair{{
		raw:  sample{rate: 10, cpu: 20, allocs: 17, bytes: 1700, p50: 100, p99: 200},
		flow: sample{rate: 20, cpu: 5, allocs: 2, bytes: 800, p50: 80, p99: 300},
	}}
	r := resultOf(scenario{name: "p", work: publish}, pairs)
	assert.InDelta(t, 2, r.rate.median, 1e-9)
	assert.InDelta(t, 0.25, r.cpu.median, 1e-9)
	assert.InDelta(t, 0.8, r.p50.median, 1e-9)
	assert.InDelta(t, 1.5, r.p99.median, 1e-9)
	assert.InDelta(t, 2, r.flow.allocs, 1e-9)
	assert.InDelta(t, 1700, r.raw.bytes, 1e-9)
	assert.False(t, resultOf(scenario{name: "c"}, pairs).latency)
	assert.False(t, resultOf(scenario{name: "c", work: pipeline}, pairs).latency)
}

func TestResult_comparesWithItsBase(t *testing.T) {
	pairs := []pair{
		{raw: sample{rate: 10}, flow: sample{rate: 80}, base: sample{rate: 100}},
		{raw: sample{rate: 10}, flow: sample{rate: 45}, base: sample{rate: 50}},
		{raw: sample{rate: 10}, flow: sample{rate: 10}, base: sample{rate: 10}},
	}
	r := resultOf(scenario{name: "c", base: bytesName}, pairs)
	assert.True(t, r.based)
	assert.Equal(t, spread{0.9, 0.8, 1}, r.base)
	assert.InDelta(t, 4.5, r.rate.median, 1e-9, "the ratio to raw stays")
	assert.False(t, resultOf(scenario{name: "c"}, pairs).based)
}

func TestMeter_countsOnlyBehindTheWarmUp(t *testing.T) {
	m := newMeter(2, 3)
	m.keepLatencies()
	begun := time.Now()
	for range 4 {
		m.time(begun)
		select {
		case <-m.done:
			require.Fail(t, "done too early")
		default:
		}
	}
	m.time(begun)
	<-m.done
	assert.Len(t, m.latencies, 3)
	m.tick() // what arrives later does not disturb
	s := m.sample()
	assert.Positive(t, s.rate)
	assert.Positive(t, s.p50)
	assert.GreaterOrEqual(t, s.p99, s.p50)
}

func TestMeter_countsFromManyGoroutines(t *testing.T) {
	m := newMeter(10, 990)
	var ticking sync.WaitGroup
	for range 4 {
		ticking.Go(func() {
			for range 250 {
				m.tick()
			}
		})
	}
	assert.Positive(t, m.sample().rate)
	ticking.Wait()
}

func TestMeter_seesWhatIsAllocated(t *testing.T) {
	const count, size = 1000, 1 << 10
	m := newMeter(1, count)
	m.tick()
	var keep []byte
	for range count {
		keep = make([]byte, size)
		m.tick()
	}
	s := m.sample()
	assert.Len(t, keep, size)
	assert.InDelta(t, 1, s.allocs, 0.5)
	assert.InDelta(t, size, s.bytes, size/2)
}

func TestTable_printsEveryResult(t *testing.T) {
	var out bytes.Buffer
	printTable(&out, []result{
		{name: "consume/bytes", rounds: 9, rate: spread{7, 6, 8}},
		{name: "consume/batch=100", based: true, base: spread{1.1, 1, 1.2}},
		{name: "publish/serial", rounds: 17, latency: true, p50: spread{0.8, 0.7, 0.9}},
	})
	assert.Contains(t, out.String(), "consume/bytes")
	assert.Contains(t, out.String(), "7.00 (6.00 to 8.00)")
	assert.Contains(t, out.String(), "0.80 (0.70 to 0.90)")
	assert.Contains(t, out.String(), "1.10 (1.00 to 1.20)")
}

func TestJSON_hasNullWhereThereIsNoLatency(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, writeJSON(file, []result{
		{name: "consume/bytes", rate: spread{7, 6, 8}, cpu: spread{0.1, 0.1, 0.2}, flow: sample{allocs: 2, bytes: 800}},
		{name: "publish/serial", latency: true, p50: spread{0.8, 0.7, 0.9}, p99: spread{1, 1, 1}},
		{name: "consume/batch=100", based: true, base: spread{1.1, 1, 1.2}},
	}))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var lines []map[string]any
	require.NoError(t, json.Unmarshal(text, &lines))
	require.Len(t, lines, 3)
	assert.Equal(t, map[string]any{
		"name": "consume/bytes", "rate_ratio": 7.0, "cpu_ratio": 0.1, "allocs": 2.0, "bytes": 800.0,
		"p50_ratio": nil, "p99_ratio": nil,
	}, lines[0])
	assert.InDelta(t, 0.8, lines[1]["p50_ratio"], 1e-9)
	assert.InDelta(t, 1.1, lines[2]["base_ratio"], 1e-9)
}

func TestScenarios_canBeChosenByNameAndPeer(t *testing.T) {
	all, err := chooseScenarios(false, "")
	require.NoError(t, err)
	assert.Len(t, all, len(scenarios))

	one, err := chooseScenarios(true, "consume/json")
	require.NoError(t, err)
	require.Len(t, one, 1)
	assert.Equal(t, one[0].broker, one[0].count)

	_, err = chooseScenarios(true, "consume/tls")
	require.ErrorContains(t, err, "consume/tls", "the source alone has TLS here")
	_, err = chooseScenarios(false, "consume/none")
	require.ErrorContains(t, err, "publish/serial")
}

func TestOrderBody_hasTheSizeOfEveryBody(t *testing.T) {
	body := orderBody()
	require.Len(t, body, bodySize)
	require.NoError(t, use(body, true))
	require.NoError(t, use(body, false))
	require.Error(t, use([]byte(`{}`), true))
	require.Error(t, use([]byte(`{}`), false))
}
