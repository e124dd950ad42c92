package amqpflow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func byNothing(*amqpflow.Delivery) string { return "" }

func takeBatch(context.Context, []*amqpflow.Message[string]) error { return nil }

// badDispatch are options of dispatch that are out of range, by the field that
// the error names.
var badDispatch = []struct {
	field string
	batch bool
	o     amqpflow.SubscribeOptions
}{
	{"SubscribeOptions.BatchSize", true, amqpflow.SubscribeOptions{BatchSize: 257}},
	{"SubscribeOptions.BatchSize", true, amqpflow.SubscribeOptions{BatchSize: 11, Credit: 10}},
	{"SubscribeOptions.BatchSize", true, amqpflow.SubscribeOptions{BatchSize: -1}},
	{"SubscribeOptions.BatchWait", true, amqpflow.SubscribeOptions{BatchWait: -1}},
	{"SubscribeOptions.PartitionBy", true, amqpflow.SubscribeOptions{PartitionBy: byNothing}},
	{"SubscribeOptions.Workers", false, amqpflow.SubscribeOptions{Workers: 257}},
	{"SubscribeOptions.Workers", false, amqpflow.SubscribeOptions{Workers: 11, Credit: 10, PartitionBy: byNothing}},
	{"SubscribeOptions.Workers", true, amqpflow.SubscribeOptions{Workers: -1}},
	{"SubscribeOptions.ReplyTo", false, amqpflow.SubscribeOptions{ReplyTo: "queue:"}},
	{"SubscribeOptions.MaxAttempts", false, amqpflow.SubscribeOptions{MaxAttempts: -1}},
	{"SubscribeOptions.RetryMin", false, amqpflow.SubscribeOptions{RetryMin: 2 * time.Second, RetryMax: time.Second}},
	{"SubscribeOptions.RetryMax", false, amqpflow.SubscribeOptions{RetryMax: -1}},
	{"SubscribeOptions.DeadLetter", false, amqpflow.SubscribeOptions{DeadLetter: "queue:"}},
	{"SubscribeOptions.DeadLetter", false, amqpflow.SubscribeOptions{DeadLetter: "queue:orders"}},
	{"SubscribeOptions.OrderedRetry", false, amqpflow.SubscribeOptions{OrderedRetry: true, Workers: 2}},
	{"SubscribeOptions.OrderedRetry", false, amqpflow.SubscribeOptions{OrderedRetry: true, AtMostOnce: true}},
	{"SubscribeOptions.OrderedRetry", true, amqpflow.SubscribeOptions{OrderedRetry: true}},
	{"SubscribeOptions.Middleware", false, amqpflow.SubscribeOptions{Middleware: []amqpflow.Middleware{nil}}},
}

func TestSubscribeOptions_ofDispatchNameTheFieldBeforeAnyDial(t *testing.T) {
	for _, tc := range badDispatch {
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t)})
		if tc.batch {
			amqpflow.SubscribeBatch(b, "orders", takeBatch, &tc.o)
		} else {
			b.Subscribe("orders", accepting, &tc.o)
		}
		requireOptionError(t, tc.field, b.Connect(t.Context()))
	}
}

// On a connected broker the subscription alone says so.
func TestSubscribeOptions_ofALateSubscriptionAreItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, sub := serve(t, accepting, nil)
		for _, tc := range badDispatch {
			var late *amqpflow.Subscription
			if tc.batch {
				late = amqpflow.SubscribeBatch(b, "orders", takeBatch, &tc.o)
			} else {
				late = b.Subscribe("orders", accepting, &tc.o)
			}
			requireOptionError(t, tc.field, late.Attached(t.Context()))
			requireOptionError(t, tc.field, late.Err())
			assert.Equal(t, amqpflow.Ended, late.State())
			<-late.Done()
			require.NoError(t, late.Close(t.Context()))
		}
		assert.Len(t, p.sent(wire.CodeAttach), 1)
		require.NoError(t, b.Err())
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		assert.Equal(t, amqpflow.Attached, sub.State())
		shutdown(t, b)
	})
}

func TestOptions_ofPublishingAndDispatchNameTheFieldBeforeAnyDial(t *testing.T) {
	for _, tc := range []struct {
		field string
		o     amqpflow.Options
	}{
		{"Options.MaxInFlight", amqpflow.Options{MaxInFlight: -1}},
		{"Options.MaxSessions", amqpflow.Options{MaxSessions: -1}},
		{"Options.MaxSessions", amqpflow.Options{MaxSessions: 1<<16 + 1}},
		{"Options.Codecs", amqpflow.Options{Codecs: []amqpflow.Codec{amqpflow.JSON(), amqpflow.JSON()}}},
		{"Options.Codecs", amqpflow.Options{Codecs: []amqpflow.Codec{nil}}},
		{"Options.Middleware", amqpflow.Options{Middleware: []amqpflow.Middleware{nil}}},
		{"Options.PublishMiddleware", amqpflow.Options{PublishMiddleware: []amqpflow.PublishMiddleware{nil}}},
		{"Options.Properties", amqpflow.Options{Properties: map[string]any{"p": struct{}{}}}},
	} {
		tc.o.DialContext = noDial(t)
		b := amqpflow.New("amqp://localhost", &tc.o)
		b.Subscribe("orders", accepting)
		requireOptionError(t, tc.field, b.Connect(t.Context()))
	}
}

// The limits themselves are allowed.
func TestSubscribeOptions_atTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{MaxInFlight: 1, MaxSessions: 1 << 16})
		b.Subscribe("a", accepting, &amqpflow.SubscribeOptions{Workers: 256})
		b.Subscribe("b", accepting, &amqpflow.SubscribeOptions{Workers: 2, Credit: 2, PartitionBy: byNothing})
		amqpflow.SubscribeBatch(b, "c", takeBatch, &amqpflow.SubscribeOptions{BatchSize: 256, BatchWait: time.Nanosecond})
		amqpflow.SubscribeBatch(b, "d", takeBatch, &amqpflow.SubscribeOptions{Credit: 1}) // the default size comes down to it
		p.connect(b)
		for _, address := range []string{"a", "b", "c", "d"} {
			p.deliver(address, data("x"))
			assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		}
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		shutdown(t, b)
	})
}
