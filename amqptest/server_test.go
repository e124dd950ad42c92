package amqptest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// everyCall makes the calls that return an error.
func everyCall(t *testing.T, s *Server) map[string]error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, dialed := s.Dial(t.Context())
	return map[string]error{
		"Serve":   s.Serve(l),
		"Dial":    dialed,
		"Connect": s.Connect(t.Context(), amqpflow.New("amqp://localhost")),
		"Put":     s.Put("orders", text("0")),
		"Idle":    s.Idle(t.Context()),
		"Fault":   s.Fault(Drop()),
	}
}

func TestServer_returnsABadOptionFromEveryCall(t *testing.T) {
	require.ErrorContains(t, NewServer(&Options{IdleTimeout: 91 * 24 * time.Hour}).Close(), "is above 2160h0m0s")
	s := NewServer(&Options{MaxFrameSize: 511, IdleTimeout: time.Millisecond})
	calls := everyCall(t, s)
	calls["Close"] = s.Close()
	_, calls["Bodies"] = Bodies[string](s, "orders")
	for name, err := range calls {
		require.ErrorContains(t, err, "Options.MaxFrameSize: 511 is below 512", name)
		require.ErrorContains(t, err, "Options.IdleTimeout: 1ms is below 2ms", name)
	}
	assert.Empty(t, s.URL())
	var failures recorder
	Check(&failures, s)
	assert.Len(t, failures.errors, 1)
	assert.Panics(t, func() { NewServer(nil, nil) })
}

func TestServer_answersErrClosedAfterClose(t *testing.T) {
	s := NewServer()
	require.NoError(t, s.Put("orders", text("0")))
	require.NoError(t, s.Close())
	for name, err := range everyCall(t, s) {
		require.ErrorIs(t, err, ErrClosed, name)
	}
	assert.Empty(t, s.URL())
	assert.Len(t, s.Messages("orders"), 1, "what is there can still be looked at")
}

func TestServer_hasNoGoroutineBeforeItIsUsed(t *testing.T) {
	before := runtime.NumGoroutine()
	s := NewServer()
	require.NoError(t, s.Put("orders", text("0")))
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
	require.NoError(t, s.Close())
}

func TestServer_leavesNoGoroutine(t *testing.T) {
	s := NewServer()
	url := s.URL()
	for range 3 {
		c, err := amqp.Dial(t.Context(), url, nil)
		require.NoError(t, err)
		ses, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, sender(t, ses, "orders", nil).Send(t.Context(), text("0"), nil))
		defer func() { _ = c.Close() }()
	}
	_, err := net.Dial("tcp", strings.TrimPrefix(url, "amqp://")) // and says nothing
	require.NoError(t, err)
	require.NoError(t, s.Close())
	var stacks strings.Builder
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 2))
	for _, of := range []string{"amqptest.(*conn)", "amqptest.(*Server).accept"} {
		assert.NotContains(t, stacks.String(), of)
	}
}

func TestServer_closeTellsItsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		c, ses := connectBoth(t, s, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		manual(t, ses, "orders", 2)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.Close())
		assert.Zero(t, time.Since(began))
		<-c.Done()
		assert.Equal(t, amqp.ErrCondConnectionForced, conditionOf(t, c.Err()))
		assert.Len(t, s.Messages("orders"), 3)
	})
}

func TestServer_closeDoesNotWaitForAClientThatIsMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		require.NoError(t, s.Put("orders", numbered(3)...))
		dialRaw(t, s)                        // says nothing
		dialRaw(t, s).header(wire.ProtoSASL) // in the middle of SASL
		dialRaw(t, s).opened().receiving(3)  // reads nothing
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.Close())
		assert.Equal(t, linger, time.Since(began))
	})
}

func TestServer_connectsABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		b := amqpflow.New("amqp://someone:secret@production.example")
		require.NoError(t, s.Connect(t.Context(), b))
		require.NoError(t, b.Shutdown(t.Context()))
	})
}

func TestServer_listensOnALoopbackPort(t *testing.T) {
	s := NewServer()
	url := s.URL()
	assert.Equal(t, url, s.URL())
	sendAndReceive(t, s, func() (*amqp.Conn, error) { return amqp.Dial(t.Context(), url, nil) })
	require.NoError(t, s.Close())
	_, err := amqp.Dial(t.Context(), url, nil)
	require.Error(t, err)
}

func TestServer_servesTLS(t *testing.T) {
	cert, pool := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(&Options{Users: map[string]string{"alice": "secret"}})
	var wg sync.WaitGroup
	served := errors.New("not yet")
	wg.Go(func() { served = s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})) })
	sendAndReceive(t, s, func() (*amqp.Conn, error) {
		return amqp.Dial(t.Context(), "amqps://"+l.Addr().String(), &amqp.ConnOptions{
			TLSConfig: &tls.Config{RootCAs: pool}, SASLType: amqp.SASLTypePlain("alice", "secret"),
		})
	})
	require.NoError(t, s.Close())
	wg.Wait()
	assert.NoError(t, served)
}

func TestServer_serveReturnsTheListenersError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	s := NewServer()
	require.ErrorIs(t, s.Serve(l), net.ErrClosed)
	require.NoError(t, s.Close())
}

// ended is a connection whose other end is closed.
type ended struct{ net.Conn }

func (ended) Read([]byte) (int, error)  { return 0, io.EOF }
func (ended) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (ended) Close() error              { return nil }

// Where both ends are closed, net.Pipe may speak of either.
func TestPipe_knowsItsOwnClose(t *testing.T) {
	p := &pipe{Conn: ended{}}
	_, err := p.Read(nil)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, p.Close())
	_, err = p.Read(nil)
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = p.Write(nil)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestServer_dialLooksAtItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := NewServer()
	_, err := s.Dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
}

// sendAndReceive sends 500 messages and receives them.
func sendAndReceive(t *testing.T, s *Server, dial func() (*amqp.Conn, error)) {
	t.Helper()
	c, err := dial()
	require.NoError(t, err)
	ses, err := c.NewSession(t.Context(), nil)
	require.NoError(t, err)
	snd := sender(t, ses, "orders", nil)
	rcv, err := ses.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Credit: 100})
	require.NoError(t, err)
	for _, m := range numbered(500) {
		require.NoError(t, snd.Send(t.Context(), m, nil))
	}
	for range 500 {
		require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
	}
	require.NoError(t, s.Idle(t.Context()))
	leave(t, c)
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestServer_stopsReadingFromAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened()
		echo := frameOf(wire.TypeAMQP, 0, &wire.Flow{NextIncomingID: wire.Some(0), Handle: wire.Some(0), LinkCredit: wire.Some(0), Echo: true}, nil)
		r.send(attachReceiver(0))
		const frames = 200_000
		var wg sync.WaitGroup
		wg.Go(func() { r.bytes(bytes.Repeat(echo, frames)) })
		synctest.Wait()
		s.mu.Lock()
		for c := range s.conns {
			assert.Greater(t, len(c.out), outLimit)
			assert.Less(t, len(c.out), outLimit+4*readBufferSize)
		}
		s.mu.Unlock()
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(io.Discard, r.nc) })
		wg.Wait() // the server reads again
		r.send(&wire.Close{})
		reading.Wait()
	})
}

func TestServer_losesAClientThatTakesNothingForIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{IdleTimeout: 10 * time.Second})
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		began := time.Now()
		for { // alive, and deaf
			<-time.After(time.Second)
			if _, err := r.nc.Write(emptyFrame); err != nil {
				break
			}
			require.Less(t, time.Since(began), time.Minute)
			if time.Since(began) == time.Second {
				r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512})
			}
		}
		assert.InDelta(t, 10, time.Since(began).Seconds(), 1.5)
	})
}
