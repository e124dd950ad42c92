package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
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

// A peer that stops answering: the context ends the wait exactly, whatever the
// step, and the socket is closed.
func TestBroker_connectEndsWithItsContextWhereverThePeerFallsSilent(t *testing.T) {
	saslOnly := func(f frame) bool { return f.proto == wire.ProtoAMQP }
	for _, tc := range []struct {
		name   string
		silent func(*peer)
		step   string
	}{
		{"at the SASL header", func(p *peer) { p.mute(headerCode) }, "sasl"},
		{"at the mechanism", func(p *peer) { p.mute(wire.CodeSASLInit) }, "sasl"},
		{"at the AMQP header", func(p *peer) { p.on(headerCode, saslOnly) }, "open"},
		{"at open", func(p *peer) { p.mute(wire.CodeOpen) }, "open"},
		{"at begin", func(p *peer) { p.mute(wire.CodeBegin) }, "session"},
		{"at attach", func(p *peer) { p.mute(wire.CodeAttach) }, "attach"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				tc.silent(p)
				b := amqpflow.New("amqp://user:hunter2@localhost")
				sub := b.Subscribe("orders", accepting)
				started := time.Now()
				err := b.ConnectInProcess(within(t, 2*time.Second), p.dial)
				assert.Equal(t, 2*time.Second, time.Since(started))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NotContains(t, err.Error(), "hunter2")
				if tc.step == "attach" {
					var refused *amqpflow.AttachError
					require.ErrorAs(t, err, &refused)
					assert.Equal(t, amqpflow.Address("orders"), refused.Address)
				} else {
					var failed *amqpflow.ConnectError
					require.ErrorAs(t, err, &failed)
					assert.Equal(t, tc.step, failed.Step)
				}
				assert.Equal(t, amqpflow.Registered, sub.State())
				synctest.Wait()
				assertGone(t, p)

				again := newPeer(t) // and Connect may be called again
				again.connect(b)
				assert.Equal(t, amqpflow.Attached, sub.State())
				require.NoError(t, b.Ready())
				shutdown(t, b)
			})
		})
	}
}

// assertGone asserts that the client has closed its half of the connection.
func assertGone(t *testing.T, p *peer) {
	t.Helper()
	select {
	case <-p.gone:
	default:
		assert.Fail(t, "the client's socket is still open", "it sent %v", p.trace())
	}
}

func TestBroker_connectNamesTheStepAtWhichThePeerFails(t *testing.T) {
	refusal := &wire.Error{Condition: "amqp:unauthorized-access", Description: "not you"}
	for _, tc := range []struct {
		name   string
		script func(*peer)
		step   string
		remote bool // the peer's error is in the chain
	}{
		{"garbage", func(p *peer) { p.on(headerCode, p.instead("HTTP/1.1 400 Bad Request\r\n\r\n")) }, "sasl", false},
		{"garbage after SASL", func(p *peer) { p.on(wire.CodeOpen, p.instead("\x00\x00\x00\x03garbage")) }, "open", false},
		{"hangs up at once", func(p *peer) { p.on(headerCode, p.hangsUp) }, "sasl", false},
		{"refuses SASL", func(p *peer) {
			p.on(wire.CodeSASLInit, func(frame) bool { p.send(0, &wire.SASLOutcome{Code: 1}); return true })
		}, "sasl", false},
		{"refuses SASL and hangs up", func(p *peer) {
			p.on(wire.CodeSASLInit, func(frame) bool {
				p.send(0, &wire.SASLOutcome{Code: 1})
				p.closeAfterWriting()
				return true
			})
		}, "sasl", false},
		{"hangs up at the mechanism", func(p *peer) { p.on(wire.CodeSASLInit, p.hangsUp) }, "sasl", false},
		{"hangs up after SASL", func(p *peer) {
			p.on(wire.CodeSASLInit, func(frame) bool { p.send(0, &wire.SASLOutcome{}); p.closeAfterWriting(); return true })
		}, "open", false},
		{"hangs up at open", func(p *peer) { p.on(wire.CodeOpen, p.hangsUp) }, "open", false},
		{"closes instead of opening", func(p *peer) {
			p.on(wire.CodeOpen, func(frame) bool {
				p.send(0, &p.open)
				p.send(0, &wire.Close{Error: refusal})
				return true
			})
		}, "", true}, // open or session: the CLOSE races with BEGIN
		{"hangs up at begin", func(p *peer) { p.on(wire.CodeBegin, p.hangsUp) }, "session", false},
		{"closes at begin", func(p *peer) {
			p.on(wire.CodeBegin, func(frame) bool { p.send(0, &wire.Close{Error: refusal}); return true })
		}, "session", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				tc.script(p)
				b := amqpflow.New("amqp://user:hunter2@localhost")
				started := time.Now()
				err := b.ConnectInProcess(context.Background(), p.dial)
				assert.Less(t, time.Since(started), time.Second, "no time passes")
				var failed *amqpflow.ConnectError
				require.ErrorAs(t, err, &failed)
				if tc.step != "" {
					assert.Equal(t, tc.step, failed.Step, "%v", err)
				}
				assert.NotContains(t, fmt.Sprintf("%v %+v", err, failed), "hunter2")
				if tc.remote {
					assert.ErrorContains(t, err, "not you")
				}
				synctest.Wait()
				assertGone(t, p)
				again := newPeer(t)
				again.connect(b)
				shutdown(t, b)
			})
		})
	}
}

func (p *peer) hangsUp(frame) bool { p.hangUp(); return true }

func (p *peer) instead(text string) func(frame) bool {
	return func(frame) bool { p.raw([]byte(text)); return true }
}

func TestBroker_failedAttachClosesEverythingAndConnectCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.on(wire.CodeAttach, func(f frame) bool {
			a := f.perf.(*wire.Attach)
			if a.Source.Address != "missing" {
				return false
			}
			p.refuse(f.channel, a, &wire.Error{Condition: "amqp:not-found", Description: "no queue"})
			return true
		})
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Logger: book.logger()})
		good := b.Subscribe("orders", accepting)
		bad := b.Subscribe("missing", accepting)
		err := b.ConnectInProcess(context.Background(), p.dial)
		var refused *amqpflow.AttachError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, amqpflow.Address("missing"), refused.Address, "%v %v", err, p.trace())
		var remote *amqp.Error
		require.ErrorAs(t, err, &remote)
		assert.Equal(t, amqp.ErrCondNotFound, remote.Condition)
		assert.Equal(t, "no queue", remote.Description)
		synctest.Wait()
		assertGone(t, p)
		assert.Equal(t, amqpflow.Registered, good.State())
		assert.Equal(t, amqpflow.Registered, bad.State())
		require.NoError(t, b.Err())
		require.ErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
		book.assertLine(t, "level=WARN", "attach refused", "address=missing", "no queue")

		again := newPeer(t)
		again.connect(b)
		assert.Equal(t, amqpflow.Attached, good.State())
		assert.Equal(t, amqpflow.Attached, bad.State())
		shutdown(t, b)
	})
}

// A real socket, so that the kernel says whether it is closed, and the
// runtime whether anything runs on.
func TestBroker_failedConnectLeavesNothingOpen(t *testing.T) {
	s := amqptest.NewServer(&amqptest.Options{Users: map[string]string{"user": "right"}})
	defer func() { assert.NoError(t, s.Close()) }()
	url := s.URL()
	base := countGoroutines()
	var open atomic.Int32
	b := amqpflow.New("amqp://user:wrong@"+url[len("amqp://"):], &amqpflow.Options{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &closeCounter{Conn: nc, open: &open}, nil
		},
	})
	for range 3 {
		err := b.Connect(context.Background())
		var failed *amqpflow.ConnectError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "sasl", failed.Step)
		assert.NotContains(t, err.Error(), "wrong")
	}
	assertGoroutines(t, base)
	assert.Zero(t, open.Load(), "sockets left open")
}

type closeCounter struct {
	net.Conn
	open   *atomic.Int32
	closed atomic.Bool
}

func (c *closeCounter) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
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
	err = b.ConnectInProcess(context.Background(), func(context.Context) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	})
	assert.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
}

func TestBroker_publishToAnInvalidAddressSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		for _, addr := range []amqpflow.Address{"", "topic:", "\xff"} {
			err := b.Publisher().Publish(t.Context(), addr, "x")
			assert.ErrorIs(t, err, amqpflow.ErrInvalidAddress)
		}
		synctest.Wait()
		assert.Empty(t, p.sent(wire.CodeAttach, wire.CodeTransfer))
		shutdown(t, b)
	})
}

func TestBroker_inProcessAndServerExcludeEachOther(t *testing.T) {
	for _, inProcessFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("in process first %v", inProcessFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t)
				b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: p.dialTCP})
				noPipe := func(context.Context) (net.Conn, error) {
					t.Error("dialled a second time")
					return nil, errors.New("no")
				}
				first := func() error { return b.Connect(t.Context()) }
				other := func() error { return b.ConnectInProcess(t.Context(), noPipe) }
				if inProcessFirst {
					first = func() error { return b.ConnectInProcess(t.Context(), p.dial) }
					other = func() error { return b.Connect(t.Context()) }
				}
				require.NoError(t, first())
				require.ErrorIs(t, other(), amqpflow.ErrConnectedElsewhere)
				require.NoError(t, first(), "the same kind again is a no-op")
				assert.Len(t, p.sent(wire.CodeOpen), 1)

				p.hangUp()
				<-b.Done()
				require.ErrorIs(t, other(), amqpflow.ErrConnectedElsewhere, "also after a loss")
				require.Error(t, b.Err())
				require.Equal(t, b.Err(), first(), "the same kind after a loss returns Err")

				_ = b.Shutdown(within(t, time.Second))
				require.ErrorIs(t, first(), amqpflow.ErrShutdown)
				require.ErrorIs(t, other(), amqpflow.ErrShutdown)
			})
		})
	}
}

func TestBroker_copySharesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		c := *b
		p.connect(b)
		require.NoError(t, c.ConnectInProcess(t.Context(), p.dial), "connected already")
		require.NoError(t, c.Ready())
		assert.Same(t, b.Publisher(), c.Publisher())
		require.NoError(t, c.Publisher().Publish(t.Context(), "orders", "x"))
		sub := c.Subscribe("orders", accepting)
		require.NoError(t, sub.Attached(t.Context()))
		assert.Equal(t, []*amqpflow.Subscription{sub}, b.Subscriptions())
		assert.Len(t, p.sent(wire.CodeOpen), 1)
		shutdown(t, &c)
		assert.ErrorIs(t, b.Publisher().Publish(t.Context(), "orders", "x"), amqpflow.ErrNotConnected)
	})
}

func TestBroker_zeroAnswersNotConnected(t *testing.T) {
	var b amqpflow.Broker
	ctx := context.Background()
	for name, err := range map[string]error{
		"Connect": b.Connect(ctx), "Run": b.Run(ctx), "Shutdown": b.Shutdown(ctx), "Ready": b.Ready(), "Err": b.Err(),
		"ConnectInProcess": b.ConnectInProcess(ctx, func(context.Context) (net.Conn, error) { panic("dialled") }),
		"Publish":          b.Publisher().Publish(ctx, "orders", "x"),
		"Publish of zero":  new(amqpflow.Publisher).Publish(ctx, "orders", "x"),
	} {
		assert.ErrorIs(t, err, amqpflow.ErrNotConnected, name)
	}
	<-b.Done()
	assert.Empty(t, b.Subscriptions())
	assert.Panics(t, func() { b.Subscribe("orders", accepting) })
	assert.Panics(t, func() {
		amqpflow.Subscribe(&b, "orders", func(context.Context, *amqpflow.Message[string]) error { return nil })
	})
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

func TestBroker_dialThatReturnsNothingIsAnError(t *testing.T) {
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, nil },
	})
	var failed *amqpflow.ConnectError
	require.ErrorAs(t, b.Connect(context.Background()), &failed)
	assert.Equal(t, "dial", failed.Step)
}

func TestBroker_credentialsThatFailAreTheSASLStep(t *testing.T) {
	for _, credentials := range []func(context.Context) (amqp.SASLType, error){
		func(context.Context) (amqp.SASLType, error) { return nil, errors.New("vault is shut") },
		func(context.Context) (amqp.SASLType, error) { return nil, nil },
	} {
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{DialContext: noDial(t), Credentials: credentials})
		var failed *amqpflow.ConnectError
		require.ErrorAs(t, b.Connect(context.Background()), &failed)
		assert.Equal(t, "sasl", failed.Step)
	}
}

func TestBroker_subscribeAfterConnectAttachesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		p.connect(b)
		p.on(wire.CodeAttach, func(f frame) bool {
			a := f.perf.(*wire.Attach)
			if a.Source == nil || a.Source.Address != "missing" {
				return false
			}
			p.refuse(f.channel, a, &wire.Error{Condition: "amqp:not-found"})
			return true
		})
		sub := b.Subscribe("orders", accepting)
		require.NoError(t, sub.Attached(t.Context()))
		assert.Equal(t, amqpflow.Attached, sub.State())
		bad := b.Subscribe("", accepting)
		require.ErrorIs(t, bad.Attached(t.Context()), amqpflow.ErrInvalidAddress)
		require.ErrorIs(t, bad.Err(), amqpflow.ErrInvalidAddress)
		missing := b.Subscribe("missing", accepting)
		var refused *amqpflow.AttachError
		require.ErrorAs(t, missing.Attached(t.Context()), &refused)
		require.ErrorAs(t, missing.Err(), &refused)
		<-missing.Done()
		require.ErrorContains(t, b.Ready(), `"missing"`)
		require.NoError(t, b.Err(), "the others go on")

		p.mute(wire.CodeAttach)
		slow := b.Subscribe("slow", accepting)
		started := time.Now()
		require.ErrorIs(t, slow.Attached(within(t, time.Second)), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(started))
		assert.Equal(t, amqpflow.Attaching, slow.State())
		_ = b.Shutdown(within(t, time.Second))
		require.Error(t, slow.Attached(t.Context()))
		<-slow.Done()
	})
}
