package main

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// socket is a blocking TCP socket outside Go's network poller: a read or
// write is one system call, and no other thread is woken for it. It is used by
// one goroutine.
type socket struct {
	fd            int
	local, remote net.Addr
}

// newSocket takes over the connection. The duplicate it makes is unknown to
// the poller, which forgets the original when that is closed.
func newSocket(conn *net.TCPConn) (*socket, error) {
	s := &socket{local: conn.LocalAddr(), remote: conn.RemoteAddr()}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	var dupErr error
	ctlErr := raw.Control(func(fd uintptr) { s.fd, dupErr = syscall.Dup(int(fd)) })
	if err := errors.Join(ctlErr, dupErr, conn.Close()); err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(s.fd, false); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *socket) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(s.fd, b)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (s *socket) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		n, err := syscall.Write(s.fd, b[written:])
		if err != nil && err != syscall.EINTR {
			return written, err
		}
		written += max(n, 0)
	}
	return written, nil
}

func (s *socket) Close() error         { return syscall.Close(s.fd) }
func (s *socket) LocalAddr() net.Addr  { return s.local }
func (s *socket) RemoteAddr() net.Addr { return s.remote }

// Deadlines do nothing: the process's own end is the bound.
func (s *socket) SetDeadline(time.Time) error      { return nil }
func (s *socket) SetReadDeadline(time.Time) error  { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
