package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// noDial fails the test if anybody dials.
func noDial(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		t.Errorf("dialled %s %s", network, addr)
		return nil, errors.New("no network in this test")
	}
}

func TestNew_doesNoIOWhateverTheURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // nothing may be left running either
		for _, url := range []string{"amqp://localhost", "amqps://u:p@host.invalid:1", "", "nonsense", "amqp://\x00", "http://x/y?z#a"} {
			b := amqpflow.New(url, &amqpflow.Options{DialContext: noDial(t)})
			b.Subscribe("orders", accepting)
			assert.NotNil(t, b.Publisher())
			require.Error(t, b.Ready())
			require.NoError(t, b.Err())
		}
	})
}

func TestBroker_connectNamesWhatIsWrongWithTheURL(t *testing.T) {
	for _, url := range []string{
		"", "localhost", "http://localhost", "amqp://", "amqp://localhost/vh", "amqp://localhost?x=1", "amqp://localhost#f",
		"amqp://user:hunter2/secret@localhost", "amqp://user:hunter2%secret@localhost", "amqps://user:hunter2secret@:5671",
	} {
		b := amqpflow.New(url, &amqpflow.Options{DialContext: noDial(t)})
		err := b.Connect(context.Background())
		var failed *amqpflow.ConnectError
		require.ErrorAs(t, err, &failed, "%q", url)
		assert.Equal(t, "parse", failed.Step, "%q", url)
		for _, text := range []string{err.Error(), failed.URL, fmt.Sprintf("%+v", failed)} {
			assert.NotContains(t, text, "hunter2")
			assert.NotContains(t, text, "secret")
		}
	}
}

func TestBroker_userInfoTogetherWithCredentialsIsAnError(t *testing.T) {
	b := amqpflow.New("amqp://user:hunter2@localhost", &amqpflow.Options{
		DialContext: noDial(t),
		Credentials: func(context.Context) (amqp.SASLType, error) {
			t.Error("asked for credentials")
			return amqp.SASLTypeAnonymous(), nil
		},
	})
	err := b.Connect(context.Background())
	var failed *amqpflow.ConnectError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "parse", failed.Step)
	assert.Contains(t, err.Error(), "Credentials")
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestBroker_connectNamesTheDialOfAClosedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	err = amqpflow.New("amqp://" + addr).Connect(context.Background())
	var failed *amqpflow.ConnectError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "dial", failed.Step)
	assert.Equal(t, "amqp://"+addr, failed.URL)
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
}

// What each URL's user arrives as, byte for byte.
func TestBroker_connectSendsWhatTheURLSays(t *testing.T) {
	for _, tc := range []struct {
		url, addr, mechanism, response, hostname string
		opts                                     amqpflow.Options
	}{
		{url: "amqp://broker", addr: "broker:5672", mechanism: "ANONYMOUS", hostname: "broker"},
		{url: "AMQP://broker:5673/", addr: "broker:5673", mechanism: "ANONYMOUS", hostname: "broker"},
		{url: "amqp://[::1]", addr: "[::1]:5672", mechanism: "ANONYMOUS", hostname: "::1"},
		{url: "amqp://u:p@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u\x00p", hostname: "broker"},
		{url: "amqp://u@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u\x00", hostname: "broker"},
		{url: "amqp://u:@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u\x00", hostname: "broker"},
		{url: "amqp://u:p@ss@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u\x00p@ss", hostname: "broker"},
		{url: "amqp://u%40d:p%40%23%2F%3F%25@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u@d\x00p@#/?%", hostname: "broker"},
		{url: "amqp://u:a+b:c@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u\x00a+b:c", hostname: "broker"},
		{
			url: "amqp://u:p@broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00u\x00p", hostname: "vhost:NAME",
			opts: amqpflow.Options{Hostname: "vhost:NAME"},
		},
		{
			url: "amqp://broker", addr: "broker:5672", mechanism: "PLAIN", response: "\x00x\x00y", hostname: "broker",
			opts: amqpflow.Options{Credentials: func(context.Context) (amqp.SASLType, error) { return amqp.SASLTypePlain("x", "y"), nil }},
		},
	} {
		t.Run(tc.url, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				tc.opts.DialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
					assert.Equal(t, "tcp", network)
					assert.Equal(t, tc.addr, addr)
					return p.client, nil
				}
				b := amqpflow.New(tc.url, &tc.opts)
				require.NoError(t, b.Connect(t.Context()))
				sasl := p.sent(wire.CodeSASLInit)[0].perf.(*wire.SASLInit)
				assert.Equal(t, wire.Symbol(tc.mechanism), sasl.Mechanism)
				if tc.mechanism == "PLAIN" {
					assert.Equal(t, tc.response, string(sasl.InitialResponse))
				}
				open := p.sent(wire.CodeOpen)[0].perf.(*wire.Open)
				assert.Equal(t, tc.hostname, open.Hostname)
				assert.NotEmpty(t, open.ContainerID)
				assert.Equal(t, "amqpflow", open.Properties.Get("product"))
				shutdown(t, b)
			})
		})
	}
}

func TestBroker_badRegistrationsAreRefusedBeforeAnyIO(t *testing.T) {
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t)})
	b.Subscribe("", accepting)
	b.Subscribe("queue:", accepting)
	b.Subscribe("good", accepting)
	b.Subscribe("bad\xff", accepting)
	b.Subscribe("orders", accepting, &amqpflow.SubscribeOptions{Credit: -1})
	err := b.Connect(context.Background())
	require.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
	var option *amqpflow.OptionError
	require.ErrorAs(t, err, &option)
	assert.Equal(t, "SubscribeOptions.Credit", option.Field)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "the join of all")
	assert.Len(t, joined.Unwrap(), 4)
	err = b.ConnectInProcess(context.Background(), noPipe(t))
	assert.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
}

func TestBroker_inProcessAndServerExcludeEachOther(t *testing.T) {
	for _, inProcessFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("in process first %v", inProcessFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: p.dialTCP})
				first := func() error { return b.Connect(t.Context()) }
				other := func() error { return b.ConnectInProcess(t.Context(), noPipe(t)) }
				if inProcessFirst {
					first = func() error { return b.ConnectInProcess(t.Context(), p.dial) }
					other = func() error { return b.Connect(t.Context()) }
				}
				require.NoError(t, first())
				require.ErrorIs(t, other(), amqpflow.ErrConnectedElsewhere)
				require.NoError(t, first(), "the same kind again is a no-op")
				assert.Len(t, p.sent(wire.CodeOpen), 1)

				p.hangUp()
				synctest.Wait()
				require.ErrorIs(t, other(), amqpflow.ErrConnectedElsewhere, "also after a loss")
				require.NoError(t, b.Err())
				shutdown(t, b)
				require.ErrorIs(t, first(), amqpflow.ErrShutdown)
				require.ErrorIs(t, other(), amqpflow.ErrShutdown)
			})
		})
	}
}

func TestBroker_connectWaitsForNobodyPastItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.mute(wire.CodeOpen)
		b := amqpflow.New("amqp://localhost")
		first := make(chan error, 1)
		go func() { first <- b.ConnectInProcess(within(t, 10*time.Second), p.dial) }()
		p.awaitCode(wire.CodeOpen)
		started := time.Now()
		err := b.ConnectInProcess(within(t, time.Second), p.dial)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(started))
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
	})
}
