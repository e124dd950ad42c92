package amqptest

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// pipeListener hands the server's ends of pipes to Serve.
type pipeListener struct {
	accepted chan net.Conn // sent by dial, received by Accept, closed by Close
}

func (l pipeListener) Accept() (net.Conn, error) {
	nc, ok := <-l.accepted
	if !ok {
		return nil, net.ErrClosed
	}
	return nc, nil
}

func (l pipeListener) Addr() net.Addr  { return l }
func (l pipeListener) Network() string { return "pipe" }
func (l pipeListener) String() string  { return "pipe" }
func (l pipeListener) Close() error {
	close(l.accepted)
	return nil
}

func (l pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.accepted <- server
	return &pipe{Conn: client}
}

func TestServer_asksExternalAboutEveryClientWithACertificate(t *testing.T) {
	cert, pool := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		var s *Server
		var asked []string
		s = NewServer(&Options{External: func(identity string, nc net.Conn) error {
			peers := nc.(*tls.Conn).ConnectionState().PeerCertificates
			asked = append(asked, identity)
			if len(peers) == 0 {
				return errors.New("no certificate")
			}
			return s.Put("orders", text(identity)) // it may call the server
		}})
		l := pipeListener{accepted: make(chan net.Conn)}
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.NoError(t, s.Serve(tls.NewListener(l, &tls.Config{
				Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
			})))
		})
		dial := func(identity string, certs ...tls.Certificate) (*amqp.Conn, error) {
			nc := tls.Client(l.dial(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", Certificates: certs})
			return amqp.NewConn(t.Context(), nc, &amqp.ConnOptions{SASLType: amqp.SASLTypeExternal(identity)})
		}
		c, err := dial("alice", cert)
		require.NoError(t, err)
		require.Len(t, s.Connections(), 1)
		assert.Equal(t, "alice", s.Connections()[0].User)
		_ = c.Close() // go-amqp may see the end of the pipe first
		_, err = dial("bob")
		require.Error(t, err)
		assert.Equal(t, []string{"alice", "bob"}, asked)
		assert.Equal(t, []string{"alice"}, bodies(t, s))
		require.NoError(t, s.Close())
		wg.Wait()
	})
}

func TestServer_offersWhatItsOptionsAllow(t *testing.T) {
	let := func(string, net.Conn) error { return nil }
	users := map[string]string{"alice": "secret"}
	for _, test := range []struct {
		o    Options
		want []wire.Symbol
	}{
		{Options{}, []wire.Symbol{"PLAIN", "ANONYMOUS"}},
		{Options{Users: users}, []wire.Symbol{"PLAIN"}},
		{Options{External: let}, []wire.Symbol{"EXTERNAL"}},
		{Options{Users: users, External: let}, []wire.Symbol{"EXTERNAL", "PLAIN"}},
	} {
		assert.Equal(t, test.want, NewServer(&test.o).mechanisms())
	}
}

func TestServer_wantsSASLWhereExternalIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{External: func(string, net.Conn) error { return nil }})
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		assert.Nil(t, r.frame(), "refused with SASL's header")
	})
}

func TestServer_closesWhileExternalIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Server
		s = NewServer(&Options{External: func(string, net.Conn) error {
			s.lock()
			for c := range s.conns {
				c.drop()
			}
			s.unlock()
			return nil
		}})
		r := dialRaw(t, s)
		r.header(wire.ProtoSASL)
		r.await(wire.CodeSASLMechanisms)
		r.bytes(frameOf(wire.TypeSASL, 0, &wire.SASLInit{Mechanism: mechanismExternal}, nil))
		assert.Nil(t, r.frame())
		require.NoError(t, s.Close())
	})
}
