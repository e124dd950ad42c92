package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
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
	base := runtime.NumGoroutine()
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
