package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

func smallBattery() *battery { return &battery{canary: &canary{}, out: io.Discard} }

func TestTrial_findsNothingInACleanRun(t *testing.T) {
	b := smallBattery()
	r := b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
		l := load{Messages: 500, Queues: 2, Subscribe: amqpflow.SubscribeOptions{RetryMin: -1}, Mixed: true}
		return b.trial(t.Context(), "clean", 1, p, l, nil, nil)
	})
	assert.Empty(t, r.breaches)
	assert.Equal(t, 500, r.verdict.published)
	assert.Equal(t, 500, r.verdict.confirmed)
	assert.Positive(t, r.unsettled, "the meter saw deliveries")
}

func TestTrial_findsWhatAHandlerLoses(t *testing.T) {
	b := smallBattery()
	r := b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
		l := load{Messages: 100, Handle: func(ctx context.Context, d *amqpflow.Delivery, c call) error {
			if c.seq == 5 {
				_ = d.Accept(ctx)
				return amqpflow.Retry(errOnPurpose) // the ledger takes it for the outcome
			}
			return nil
		}, Unseen: func(t *trial) int64 { return t.ledger.outstanding() }}
		return b.trial(t.Context(), "liar", 1, p, l, nil, nil)
	})
	assert.Positive(t, r.verdict.lost)
	assert.Positive(t, r.verdict.phantom)
}

func TestBattery_failsARunWithoutAFault(t *testing.T) {
	quiet := scenario{name: "quiet", run: func(context.Context, *battery, uint64) []*result {
		return []*result{{scenario: "quiet", peer: "none", runs: 1}}
	}}
	b := smallBattery()
	b.play(t.Context(), []scenario{quiet}, 1)
	assert.True(t, b.failed())

	quiet.faultless = true
	b = smallBattery()
	b.play(t.Context(), []scenario{quiet}, 1)
	assert.False(t, b.failed())
}

func TestBattery_printsWhatWasBreached(t *testing.T) {
	var out bytes.Buffer
	printTable(&out, []*result{{scenario: "kill", peer: "artemis", seed: 7, breaches: []string{"it is lost"}}})
	assert.Contains(t, out.String(), "BREACH kill on artemis, seed 7: it is lost")
}

func TestPromptness_excusesOnlyTheMachine(t *testing.T) {
	p := &promptness{canary: &canary{}}
	p.returned("Publish", time.Now().Add(-50*time.Millisecond))
	assert.Empty(t, p.breaches())
	p.returned("Publish", time.Now().Add(-250*time.Millisecond))
	assert.Len(t, p.breaches(), 1)
	p.canary.due = time.Now().Add(-230 * time.Millisecond) // it has not woken yet
	p.returned("Close", time.Now().Add(-250*time.Millisecond))
	assert.Len(t, p.breaches(), 1)
	p.canary.due = time.Now()
	p.canary.late = []lateness{{at: time.Now().Add(-time.Second), by: time.Second}}
	p.returned("Close", time.Now().Add(-250*time.Millisecond))
	assert.Len(t, p.breaches(), 1)
}

func TestHeap_growsOrNot(t *testing.T) {
	h := &heapWatch{}
	for i := range 100 {
		h.samples = append(h.samples, int64(i)<<20)
	}
	assert.Contains(t, h.breach(64<<20), "the bound is 64 MiB")
	assert.Contains(t, h.breach(200<<20), "grows")
	for i := range h.samples {
		h.samples[i] = 10 << 20
	}
	assert.Empty(t, h.breach(64<<20))
}

func TestRecovery_isFromTheDialThatSucceeded(t *testing.T) {
	var r recovery
	start := time.Now()
	r.dial(start)
	r.dial(start.Add(time.Second))
	r.attached(start.Add(1200 * time.Millisecond))
	r.handled(start.Add(1500 * time.Millisecond))
	r.handled(start.Add(9 * time.Second))
	worst, times := r.result()
	assert.Equal(t, 500*time.Millisecond, worst)
	assert.Equal(t, 1, times)
}
