package amqptest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/amqpflow/amqpflow"
)

// URL returns the address of a loopback port, "amqp://127.0.0.1:PORT". The
// first call opens it. It returns "" if it cannot: the options were bad, the
// server is closed, or no port could be opened, which Close reports.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closed || s.url != "" {
		return s.url
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.violations = append(s.violations, fmt.Errorf("amqptest: url: %w", err))
		return ""
	}
	s.url = "amqp://" + l.Addr().String()
	s.listeners[l] = struct{}{}
	// Started by the first URL, ends when Close closes l, waited for by Close.
	s.wg.Go(func() { _ = s.accept(l) })
	return s.url
}

// Serve accepts connections on l until Close, which closes l, and then
// returns nil. Otherwise it returns the error of l, which stays open. For TLS
// give it a listener made by tls.NewListener.
func (s *Server) Serve(l net.Listener) error {
	if s.err != nil {
		return s.err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	return s.accept(l)
}

func (s *Server) accept(l net.Listener) error {
	for {
		nc, err := l.Accept()
		if err == nil {
			err = s.start(nc)
		}
		if err == nil || refused(err) {
			continue
		}
		s.mu.Lock()
		delete(s.listeners, l)
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return nil
		}
		return fmt.Errorf("amqptest: serve: %w", err)
	}
}

// pipe is the client's end of a net.Pipe, which after its Close fails as a
// socket does, whatever the other end has done since: clients know their own
// Close by net.ErrClosed.
type pipe struct {
	net.Conn
	closed atomic.Bool
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	return n, p.failure(err)
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	return n, p.failure(err)
}

func (p *pipe) failure(err error) error {
	if err != nil && p.closed.Load() {
		return net.ErrClosed
	}
	return err
}

func (p *pipe) Close() error {
	p.closed.Store(true)
	return p.Conn.Close()
}

// Dial returns the client's end of a pipe to the server. It does not wait:
// ctx is only looked at once. It returns syscall.ECONNREFUSED while RefuseTCP
// says so.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	if err := errors.Join(ctx.Err(), s.err); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if err := s.start(server); err != nil {
		_ = client.Close()
		return nil, err
	}
	return &pipe{Conn: client}, nil
}

// Connect connects b to the server over a pipe: b.ConnectInProcess with Dial.
func (s *Server) Connect(ctx context.Context, b *amqpflow.Broker) error {
	if err := s.usable(); err != nil {
		return err
	}
	return b.ConnectInProcess(ctx, s.Dial)
}

// start serves nc by two goroutines of its own, which end with the connection
// and are waited for by Close. It owns nc.
func (s *Server) start(nc net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = nc.Close()
		return ErrClosed
	}
	c := newConn(s, nc)
	c.number = s.connected
	s.connected++
	if err := c.refuseTCP(); err != nil {
		return err
	}
	s.conns[c] = struct{}{}
	s.wg.Go(c.readLoop)
	s.wg.Go(c.writeLoop)
	return nil
}
