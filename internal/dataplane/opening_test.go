package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// saslPeer answers the SASL layer with code and, if it is 0, opens. It reads
// whatever comes, in frames.
func saslPeer(t *testing.T, nc net.Conn, mechanisms []wire.Symbol, code uint8) {
	p := &peer{t: t, nc: nc}
	next := func() {
		head := make([]byte, 8)
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		if h, err := wire.ParseFrameHeader(head); err == nil && head[0] != 'A' {
			_, _ = io.ReadFull(nc, make([]byte, h.Size-8))
		}
	}
	sasl := func(f performative) { p.write(encode(wire.TypeSASL, 0, f.Append)) }
	next()
	h := wire.ProtocolHeader(wire.ProtoSASL)
	p.write(h[:])
	sasl(&wire.SASLMechanisms{Mechanisms: mechanisms})
	next()
	sasl(&wire.SASLOutcome{Code: code})
	if code != 0 {
		return
	}
	next()
	h = wire.ProtocolHeader(wire.ProtoAMQP)
	p.write(h[:])
	next()
	p.send(0, &wire.Open{ContainerID: "peer", MaxFrameSize: 512})
	for {
		if _, err := nc.Read(make([]byte, 512)); err != nil {
			return
		}
	}
}

func TestConn_authenticates(t *testing.T) {
	for name, c := range map[string]struct {
		mechanisms []wire.Symbol
		code       uint8
		phase      Phase
		outcome    bool
		fails      string
	}{
		"accepted":      {[]wire.Symbol{"", "ANONYMOUS"}, 0, PhaseRunning, true, ""},
		"refused":       {[]wire.Symbol{"ANONYMOUS"}, 1, PhaseSASL, true, "auth failed"},
		"no mechanism":  {[]wire.Symbol{"", ""}, 0, PhaseSASL, false, "no SASL mechanism"},
		"another only":  {[]wire.Symbol{"PLAIN"}, 0, PhaseSASL, false, "no supported auth mechanism"},
		"code unheard":  {[]wire.Symbol{"ANONYMOUS"}, 77, PhaseSASL, true, "auth failed"},
		"empty at last": {[]wire.Symbol{"ANONYMOUS", ""}, 0, PhaseRunning, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				go1(t, func() { saslPeer(t, b, c.mechanisms, c.code) })
				conn := New(a, Options{})
				assert.Equal(t, PhaseHeader, conn.Phase())
				ac, err := amqp.NewConn(context.Background(), conn, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
				if c.fails == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.fails)
				}
				assert.Equal(t, c.phase, conn.Phase())
				code, ok := conn.SASLOutcome()
				assert.Equal(t, c.outcome, ok)
				if ok {
					assert.Equal(t, c.code, code)
				}
				_ = conn.Close()
				if ac != nil {
					_ = ac.Close()
				}
				conn.Wait()
				_ = b.Close()
			})
		})
	}
}

func TestConn_abortFreesAnOpeningThatNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		conn := New(a, Options{})
		errs := make(chan error, 1)
		go1(t, func() {
			_, err := amqp.NewConn(context.Background(), conn, nil)
			errs <- err
		})
		go1(t, func() { _, _ = io.Copy(io.Discard, b) })
		pass(time.Second)
		cause := errors.New("enough")
		conn.Abort(cause)
		require.ErrorIs(t, <-errs, cause)
		conn.Abort(errors.New("too late"))
		require.Equal(t, cause, conn.Err())
		_, err := conn.ExpectSession()
		require.Equal(t, cause, err)
		conn.Wait()
		_ = b.Close()
	})
}

func TestConn_refusesAnOpenThatCannotBe(t *testing.T) {
	for name, f := range map[string][]byte{
		"frames too small":  amqpFrame(0, &wire.Open{ContainerID: "x", MaxFrameSize: 511}),
		"another channel":   amqpFrame(1, &wire.Open{ContainerID: "x", MaxFrameSize: 512}),
		"no container":      frameOf(12, 2, 0, 0x00, 0x53, 0x10, 0x45),
		"begin before open": amqpFrame(0, &wire.Begin{}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBare(t, rigOptions{peer: peerOptions{mute: map[uint64]bool{wire.CodeOpen: true}}})
				h := wire.ProtocolHeader(wire.ProtoAMQP)
				_, err := r.c.Write(h[:])
				require.NoError(t, err)
				r.unit()
				r.p.write(f)
				<-r.c.Done()
				require.ErrorContains(t, r.c.Err(), "broke the protocol")
				assert.Equal(t, PhaseOpen, r.c.Phase())
			})
		})
	}
	t.Run("close instead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newBare(t, rigOptions{peer: peerOptions{mute: map[uint64]bool{wire.CodeOpen: true}}})
			h := wire.ProtocolHeader(wire.ProtoAMQP)
			_, err := r.c.Write(h[:])
			require.NoError(t, err)
			r.unit()
			r.p.send(0, &wire.Close{Error: &wire.Error{Condition: "amqp:not-found", Description: "no such vhost"}})
			synctest.Wait()
			require.ErrorContains(t, r.c.Err(), "no such vhost")
			require.NoError(t, r.c.Close())
		})
	})
}

func TestConn_failsWhenGoAMQPDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{Options: Options{MaxSessions: 60000}, peer: peerOptions{open: wire.Open{ChannelMax: 65535}}})
		r.open()
		for range 40_000 {
			s, err := r.c.ExpectSession()
			if err != nil {
				require.ErrorIs(t, err, errFlooded)
				break
			}
			channel := uint16(len(r.c.all) - 1)
			_ = s
			if r.tryWrite(channel, &wire.Begin{IncomingWindow: 1, OutgoingWindow: 1}) != nil {
				break
			}
			synctest.Wait()
		}
		<-r.c.Done()
		require.ErrorIs(t, r.c.Err(), errFlooded)
	})
}
