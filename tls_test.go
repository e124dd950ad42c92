package amqpflow_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// certificate is a self-signed one for localhost, and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestBroker_connectsOverTLSAndNamesItsFailure(t *testing.T) {
	cert, pool := certificate(t)
	s := amqptest.NewServer()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})) }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	base := runtime.NumGoroutine()
	for _, tc := range []struct {
		name, url string
		config    *tls.Config
		fails     any
	}{
		{"an authority nobody knows", "amqps://user:hunter2@localhost:" + port, nil, new(*tls.CertificateVerificationError)},
		{"another name", "amqps://127.0.0.1:" + port, &tls.Config{RootCAs: pool}, new(*tls.CertificateVerificationError)},
		{"its own roots", "amqps://localhost:" + port, &tls.Config{RootCAs: pool}, nil},
		{"its own server name", "amqp+ssl://127.0.0.1:" + port, &tls.Config{RootCAs: pool, ServerName: "localhost"}, nil},
		{"no verification", "AMQPS://127.0.0.1:" + port, &tls.Config{InsecureSkipVerify: true}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := amqpflow.New(tc.url, &amqpflow.Options{TLS: tc.config})
			err := b.Connect(within(t, 10*time.Second))
			if tc.fails == nil {
				require.NoError(t, err)
				require.NoError(t, b.Publisher().Publish(within(t, 10*time.Second), "out", "x"))
				shutdown(t, b)
				return
			}
			var failed *amqpflow.ConnectError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, "tls", failed.Step)
			require.ErrorAs(t, err, tc.fails)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
	plain := amqptest.NewServer()
	b := amqpflow.New("amqps" + plain.URL()[len("amqp"):])
	var failed *amqpflow.ConnectError
	require.ErrorAs(t, b.Connect(within(t, 10*time.Second)), &failed)
	assert.Equal(t, "tls", failed.Step, "a peer that speaks no TLS")
	require.Error(t, plain.Close(), "which says so")
	assertGoroutines(t, base)
	_ = s.Close() // a handshake that failed is no rule of AMQP's
	require.NoError(t, <-served)
}

func TestBroker_tlsHandshakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		gone := make(chan struct{})
		go func() { // reads and says nothing
			_, _ = io.Copy(io.Discard, server)
			close(gone)
		}()
		b := amqpflow.New("amqps://localhost", &amqpflow.Options{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		})
		started := time.Now()
		err := b.Connect(within(t, 2*time.Second))
		assert.Equal(t, 2*time.Second, time.Since(started))
		var failed *amqpflow.ConnectError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "tls", failed.Step)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		<-gone
	})
}

// The user of the URL counts in process, its host and TLS do not.
func TestBroker_inProcessTakesNoTLSFromTheURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := amqptest.NewServer(&amqptest.Options{Users: map[string]string{"u": "p"}})
		b := amqpflow.New("amqps://u:p@production.invalid:5671")
		require.NoError(t, s.Connect(t.Context(), b))
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		shutdown(t, b)
		require.NoError(t, s.Close())
	})
}
