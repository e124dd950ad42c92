package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// badPayloadsStopNobody has a typed handler, and 30 messages in a thousand
// that are none of its type.
func badPayloadsStopNobody(t *testing.T, p suitePeer) {
	const total, bad = 1000, 30
	contentTypes := []string{"", "application/json", "application/json; charset=utf-8", "application/vnd.shop+json", "text/plain"}
	malformed := []string{`["a list"]`, `{"n": "la`, "", "\xff\xfe{\x00", `{"n": "three"}`}
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	ms := make([]*amqp.Message, total)
	var want, dead []string
	for i := range ms {
		ms[i] = textMessage(fmt.Sprintf(`{"n": %d}`, i))
		ms[i].Properties = &amqp.MessageProperties{MessageID: fmt.Sprint(i)}
		if contentType := contentTypes[i%len(contentTypes)]; contentType != "" {
			ms[i].Properties.ContentType = &contentType
		}
		if i%(total/bad) == 0 && len(dead) < bad {
			body := malformed[len(dead)%len(malformed)]
			ms[i].Data = [][]byte{[]byte(body)}
			want, dead = append(want, fmt.Sprint(i, " ", body)), append(dead, body)
		}
	}
	q.put(t, ms...)
	var failed gathered[string]
	b := brokerAt(p)
	sub := amqpflow.Subscribe(b, q.addr, func(context.Context, *amqpflow.Message[part]) error { return nil },
		&amqpflow.SubscribeOptions{Credit: 20, OnFailure: func(d *amqpflow.Delivery, err error) error {
			assert.ErrorAs(t, err, new(*amqpflow.DecodeError))
			failed.add(d.MessageID() + " " + string(d.Data()))
			return &amqpflow.OutcomeError{Outcome: amqpflow.Rejected, Condition: amqp.ErrCondDecodeError, Err: err}
		}})
	mustConnect(t, b)
	require.Eventually(t, func() bool { return sub.Stats().Accepted == total-bad }, patience, 5*time.Millisecond)
	shutDown(t, b)

	assert.Equal(t, want, failed.all(), "each once, with its bytes and properties")
	assert.Equal(t, amqpflow.Stats{Received: total, Accepted: total - bad, Rejected: bad}, sub.Stats())
	assert.Equal(t, dead, bodiesOf(p.deadLetters(t, q, bad)))
	requireRejections(t, q, amqp.ErrCondDecodeError, bad)
	assert.Empty(t, q.rest(t))
}

// panicsAreFailuresAndTheServiceLives panics in every way at the first attempt,
// and in whatever looks on.
func panicsAreFailuresAndTheServiceLives(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{deadLetters: true})
	ways := []string{"an error", "a string", "nil", "exit", "a plain error", "after settling", "exit again"}
	q.putBodies(t, ways...)
	var mu sync.Mutex
	attempts := map[string][]int{}
	book := new(logbook)
	b := brokerAt(p, &amqpflow.Options{Logger: book.logger(), Observer: &amqpflow.Observer{
		Settled: func(*amqpflow.Delivery, amqpflow.Outcome, time.Duration, error) { panic("in the observer") },
		Error:   func(error) { panic("in the observer") },
	}})
	sub := b.Subscribe(q.addr, func(ctx context.Context, d *amqpflow.Delivery) error {
		way := string(d.Data())
		mu.Lock()
		attempts[way] = append(attempts[way], d.Attempt())
		mu.Unlock()
		if d.Attempt() > 1 {
			return nil
		}
		switch way {
		case "an error":
			panic(errors.New("boom"))
		case "a string":
			panic("boom")
		case "nil":
			panic(nil) //nolint:govet // what is tested
		case "after settling":
			assert.NoError(t, d.Accept(ctx))
			panic("boom")
		case "a plain error":
			return errors.New(way)
		}
		runtime.Goexit()
		return nil
	}, &amqpflow.SubscribeOptions{
		Workers: 2, RetryMax: 10 * time.Millisecond,
		OnFailure: func(*amqpflow.Delivery, error) error { panic("in OnFailure") },
	})
	mustConnect(t, b)
	n := uint64(len(ways))
	require.Eventually(t, func() bool { return sub.Stats().Accepted == n }, patience, 5*time.Millisecond)
	assert.Equal(t, amqpflow.Attached, sub.State())
	shutDown(t, b)

	assert.Equal(t, amqpflow.Stats{Received: 2*n - 1, Accepted: n, Modified: n - 1}, sub.Stats())
	for _, way := range ways {
		want := []int{1, 2}
		if way == "after settling" {
			want = []int{1}
		}
		assert.Equal(t, want, attempts[way], way)
	}
	book.assertLine(t, "level=ERROR", "boom", "suite_handlers_test.go")
	assert.Empty(t, q.rest(t))
	p.deadLetters(t, q, 0)
}
