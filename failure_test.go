package amqpflow_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestSubscription_panicAndGoexitAreARetryAndTheServiceLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		goroutines := map[string]bool{}
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			goroutines[string(d.Data())] = true
			switch string(d.Data()) {
			case "panic":
				panic("boom 17")
			case "panic with an outcome":
				panic(amqpflow.Reject(errors.New("bad")))
			case "exit":
				runtime.Goexit()
			case "nil map":
				nilMap()["a"] = 1
			}
			return nil
		}, &amqpflow.SubscribeOptions{RetryMin: -1}, &amqpflow.Options{Logger: book.logger()})
		bodies := []string{"panic", "fine", "exit", "nil map", "panic with an outcome", "exit", "fine"}
		for _, body := range bodies {
			p.deliver("orders", data(body))
		}
		quiet()
		outcomes := p.outcomes()
		for id, body := range bodies {
			want := wire.StateModified
			switch body {
			case "fine":
				want = wire.StateAccepted
			case "panic with an outcome":
				want = wire.StateRejected
			}
			assert.Equal(t, []wire.StateKind{want}, outcomes[uint32(id)], body)
		}
		assert.Equal(t, amqpflow.Attached, sub.State())
		assert.Zero(t, sub.Stats().Running)
		require.NoError(t, b.Ready())
		book.assertLine(t, "level=ERROR", "handler panicked", "address=orders", "boom 17", "stack=", "failure_test.go")
		book.assertLine(t, "level=ERROR", "handler panicked", "Goexit", "stack=", "failure_test.go")
		book.assertLine(t, "level=ERROR", "handler panicked", "nil map")
		book.assertLine(t, "level=WARN", "settled", "address=orders", "outcome=modified", "attempt=1")
		shutdown(t, b)
	})
}

func TestSubscription_onFailureMapsWhatChoseNoOutcome(t *testing.T) {
	type seen struct {
		body string
		err  error
	}
	synctest.Test(t, func(t *testing.T) {
		var asked []seen
		cause := errors.New("cause")
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		results := map[string]error{
			`"released"`: cause, `"accepted"`: cause, `"itself"`: cause, `"chosen"`: amqpflow.Reject(cause), `"fine"`: nil,
		}
		amqpflow.Subscribe(b, "orders", func(_ context.Context, m *amqpflow.Message[name]) error {
			if m.Body == "panics" {
				panic("boom")
			}
			return results[string(m.Data())]
		}, &amqpflow.SubscribeOptions{RetryMin: -1, OnFailure: func(d *amqpflow.Delivery, err error) error {
			asked = append(asked, seen{string(d.Data()), err})
			switch string(d.Data()) {
			case `"released"`, `broken`:
				return amqpflow.Release()
			case `"accepted"`:
				return nil
			}
			return err
		}})
		p.connect(b)
		bodies := []string{`"released"`, `"accepted"`, `"itself"`, `"chosen"`, `"fine"`, `broken`, `"panics"`}
		for _, body := range bodies {
			p.deliver("orders", data(body))
		}
		quiet()
		outcomes := p.outcomes()
		for id, want := range []wire.StateKind{
			wire.StateReleased, wire.StateAccepted, wire.StateModified, wire.StateRejected, wire.StateAccepted, wire.StateReleased, wire.StateModified,
		} {
			assert.Equal(t, []wire.StateKind{want}, outcomes[uint32(id)], bodies[id])
		}
		require.Len(t, asked, 5, "not about what chose an outcome, nor about success")
		for _, s := range asked[:3] {
			assert.Equal(t, cause, s.err)
		}
		var decode *amqpflow.DecodeError
		require.ErrorAs(t, asked[3].err, &decode)
		assert.Equal(t, amqpflow.Address("orders"), decode.Address)
		var panicked *amqpflow.PanicError
		require.ErrorAs(t, asked[4].err, &panicked)
		assert.Equal(t, "boom", panicked.Value)
		assert.Contains(t, string(panicked.Stack), "failure_test.go")
		shutdown(t, b)
	})
}

type name string

func TestSubscription_onFailureThatPanicsIsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { return errors.New("x") },
			&amqpflow.SubscribeOptions{OnFailure: func(*amqpflow.Delivery, error) error { panic("mapper") }},
			&amqpflow.Options{Logger: book.logger()})
		for range 3 {
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
		}
		book.assertLine(t, "level=ERROR", "OnFailure panicked", "mapper", "stack=")
		assert.Equal(t, amqpflow.Attached, sub.State())
		shutdown(t, b)
	})
}

func TestSubscription_onFailureThatEndsItsGoroutineIsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { return errors.New("x") },
			&amqpflow.SubscribeOptions{Credit: 1, RetryMin: -1, OnFailure: func(*amqpflow.Delivery, error) error { runtime.Goexit(); return nil }},
			&amqpflow.Options{Logger: book.logger()})
		for range 3 {
			p.deliver("orders", data("x"))
			assert.Equal(t, wire.StateModified, p.awaitDisposition().State.Kind)
		}
		quiet()
		book.assertLine(t, "level=ERROR", "OnFailure panicked", "runtime.Goexit", "stack=")
		assert.Zero(t, sub.Stats().Running)
		started := time.Now()
		shutdown(t, b)
		assert.Zero(t, time.Since(started))
	})
}

func TestSubscription_failFastOfOnFailureEndsTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := errors.New("fatal")
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { return errors.New("x") },
			&amqpflow.SubscribeOptions{OnFailure: func(*amqpflow.Delivery, error) error { return amqpflow.FailFast(fatal) }})
		p.deliver("orders", data("x"))
		<-b.Done()
		require.Equal(t, fatal, b.Err())
		_ = b.Shutdown(within(t, time.Second))
		assert.Empty(t, p.outcomes())
	})
}

func TestSubscription_bodyThatCannotBeDecodedIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Logger: book.logger()})
		amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[map[string]int]) error {
			t.Error("the handler was called")
			return nil
		})
		p.connect(b)
		for _, payload := range [][]byte{
			data("{not json, and secret"),
			append((&wire.Properties{ContentType: "image/png"}).Append(nil), data("x")...),
		} {
			p.deliver("orders", payload)
			d := p.awaitDisposition()
			assert.Equal(t, wire.StateRejected, d.State.Kind)
			require.NotNil(t, d.State.Error)
			assert.Equal(t, wire.Symbol("amqp:decode-error"), d.State.Error.Condition)
			assert.Contains(t, d.State.Error.Description, "orders")
		}
		book.assertLine(t, "level=WARN", "settled", "outcome=rejected")
		assert.NotContains(t, book.String(), "secret", "a body is never logged")
		shutdown(t, b)
	})
}

func nilMap() map[string]int { return nil }
