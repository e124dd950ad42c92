package amqpflow_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

func TestOptions_outOfRangeNameTheFieldBeforeAnyDial(t *testing.T) {
	type options = amqpflow.Options
	for _, tc := range []struct {
		field string
		o     options
	}{
		{"Options.IdleTimeout", options{IdleTimeout: time.Microsecond}},
		{"Options.IdleTimeout", options{IdleTimeout: time.Millisecond - 1}},
		{"Options.ShutdownTimeout", options{ShutdownTimeout: -1}},
		{"Options.Dialect", options{Dialect: 99}},
		{"Options.Codecs", options{Codecs: []amqpflow.Codec{nil}}},
		{"Options.Codecs", options{Codecs: []amqpflow.Codec{amqpflow.JSON(), amqpflow.JSON()}}},
		{"Options.Properties", options{Properties: map[string]any{"a": struct{}{}}}},
		{"Options.Properties", options{Properties: map[string]any{"": "x"}}},
		{"Options.Properties", options{Properties: map[string]any{"a": make(chan int)}}},
	} {
		tc.o.DialContext = noDial(t)
		b := amqpflow.New("amqp://localhost", &tc.o)
		requireOptionError(t, tc.field, b.Connect(context.Background()))
		requireOptionError(t, tc.field, b.Run(context.Background()))
		requireOptionError(t, tc.field, b.ConnectInProcess(context.Background(), noPipe(t)))
	}
}

func noPipe(t *testing.T) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no pipe in this test")
	}
}

func requireOptionError(t *testing.T, field string, err error) {
	t.Helper()
	var bad *amqpflow.OptionError
	require.ErrorAs(t, err, &bad, field)
	assert.Equal(t, field, bad.Field)
	require.Error(t, bad.Err)
	assert.Contains(t, err.Error(), "amqpflow: option "+field)
}

func TestSubscribeOptions_outOfRangeNameTheFieldBeforeAnyDial(t *testing.T) {
	type options = amqpflow.SubscribeOptions
	for _, tc := range []struct {
		field string
		o     options
	}{
		{"SubscribeOptions.Credit", options{Credit: -1}},
		{"SubscribeOptions.Credit", options{Credit: 1<<20 + 1}},
		{"SubscribeOptions.HandlerTimeout", options{HandlerTimeout: -1}},
		{"SubscribeOptions.LinkProperties", options{LinkProperties: map[string]any{"a": struct{}{}}}},
		{"SubscribeOptions.LinkProperties", options{LinkProperties: map[string]any{"": 1}}},
	} {
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t)})
		sub := b.Subscribe("orders", accepting, &tc.o)
		requireOptionError(t, tc.field, b.Connect(context.Background()))
		assert.Equal(t, amqpflow.Registered, sub.State())
	}
	for _, ok := range []options{{Credit: 1}, {Credit: 1 << 20}, {MaxMessageSize: -1}, {HandlerTimeout: 1}} {
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("this far")
		}})
		b.Subscribe("orders", accepting, &ok)
		require.ErrorContains(t, b.Connect(context.Background()), "this far")
	}
}

// Everything that is wrong is told at once.
func TestBroker_connectJoinsAllThatIsWrong(t *testing.T) {
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t), IdleTimeout: 1, Dialect: 99})
	b.Subscribe("", accepting, &amqpflow.SubscribeOptions{Credit: -1, HandlerTimeout: -1})
	err := b.Connect(context.Background())
	for _, text := range []string{"Options.IdleTimeout", "Options.Dialect", "SubscribeOptions.Credit", "SubscribeOptions.HandlerTimeout"} {
		assert.ErrorContains(t, err, text)
	}
	assert.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
}

func TestOptions_misuseThatPanics(t *testing.T) {
	handler := func(context.Context, *amqpflow.Message[string]) error { return nil }
	b := amqpflow.New("amqp://localhost", nil)
	for name, misuse := range map[string]func(){
		"two options":              func() { amqpflow.New("amqp://localhost", nil, nil) },
		"two subscribe options":    func() { b.Subscribe("orders", accepting, nil, nil) },
		"two options of the typed": func() { amqpflow.Subscribe(b, "orders", handler, nil, nil) },
		"nil handler":              func() { b.Subscribe("orders", nil) },
		"nil typed handler":        func() { amqpflow.Subscribe[string](b, "orders", nil) },
		"nil dial":                 func() { _ = b.ConnectInProcess(context.Background(), nil) },
		"nil broker":               func() { amqpflow.Subscribe(nil, "orders", handler) },
	} {
		assert.Panics(t, misuse, name)
	}
	assert.Empty(t, b.Subscriptions(), "nothing was registered")
}

// The caller's options are read at New and Subscribe, and never changed.
func TestOptions_areNotChanged(t *testing.T) {
	o := amqpflow.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}
	so := amqpflow.SubscribeOptions{}
	b := amqpflow.New("amqps://localhost:1", &o)
	b.Subscribe("orders", accepting, &so)
	require.Error(t, b.Connect(context.Background()))
	assert.Empty(t, o.TLS.ServerName)
	assert.Zero(t, o.IdleTimeout)
	assert.Nil(t, o.Codecs)
	assert.Zero(t, so.Credit)
}
