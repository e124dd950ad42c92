package amqptest

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFault_resetsWhatAListenerHasAccepted(t *testing.T) {
	s := newServer(t, nil)
	require.NoError(t, s.Fault(RefuseTCP()))
	_, err := amqp.Dial(t.Context(), s.URL(), nil)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	c, err := amqp.Dial(t.Context(), s.URL(), nil)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestFault_dropIsAResetOfTCP(t *testing.T) {
	s := newServer(t, nil)
	at, err := url.Parse(s.URL())
	require.NoError(t, err)
	nc, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	r := &raw{t: t, nc: nc}
	r.opened()
	require.NoError(t, s.Fault(Drop()))
	for err == nil {
		_, err = nc.Read(make([]byte, 512))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NoError(t, nc.Close())
}

// over are connections to s by a pipe's other ways.
func over(t *testing.T, s *Server) map[string]func() (*amqp.Conn, error) {
	t.Helper()
	cert, pool := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.NoError(t, s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})))
	})
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		wg.Wait()
	})
	return map[string]func() (*amqp.Conn, error){
		"TCP": func() (*amqp.Conn, error) { return amqp.Dial(t.Context(), s.URL(), nil) },
		"TLS": func() (*amqp.Conn, error) {
			return amqp.Dial(t.Context(), "amqps://"+l.Addr().String(), &amqp.ConnOptions{TLSConfig: &tls.Config{RootCAs: pool}})
		},
	}
}

func TestFault_stallsOverSocketsAndIsLifted(t *testing.T) {
	s := NewServer()
	for name, dial := range over(t, s) {
		for _, f := range []Fault{Silence(), Mute(), Deaf(), StopReading(), Drip(1, time.Hour)} {
			t.Run(name+" "+f.String(), func(t *testing.T) {
				c, err := dial()
				require.NoError(t, err)
				ses, err := c.NewSession(t.Context(), nil)
				require.NoError(t, err)
				snd := sender(t, ses, "orders", nil)
				require.NoError(t, s.Fault(f))
				receipt, err := snd.SendWithReceipt(t.Context(), text("0"), nil)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				_, err = receipt.Wait(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancel()
				s.Heal()
				_, err = receipt.Wait(t.Context())
				require.NoError(t, err)
				leave(t, c)
			})
		}
	}
}

func TestServer_closesAtOnceWhatAFaultHolds(t *testing.T) {
	s := NewServer()
	dials := over(t, s)
	require.NoError(t, s.Fault(Together(Silence().AfterFrames(5).Always(), Drip(1, time.Hour).AfterFrames(5).Always())))
	var ended []<-chan struct{}
	for _, dial := range dials {
		c, err := dial()
		require.NoError(t, err)
		ended = append(ended, c.Done())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err = c.NewSession(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	require.NoError(t, s.Close())
	for _, done := range ended {
		<-done
	}
}
