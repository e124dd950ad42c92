package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"time"
)

// sourceEnv, if set, makes this program the source instead of the bench.
const sourceEnv = "AMQPFLOW_BENCH_SOURCE"

// sourceLife bounds the source process, should nobody close its stdin.
const sourceLife = 30 * time.Minute

// sourceAddress is what the source process prints: where it listens, and the
// certificate that its TLS port shows.
type sourceAddress struct {
	Plain, TLS  string
	Certificate []byte // DER
}

// sourcePeer is the source in a process of its own, so that its CPU time is
// not in the bench's.
type sourcePeer struct {
	process *exec.Cmd
	stdin   io.Closer
	address sourceAddress
	tls     *tls.Config
}

// startSource runs this program again as the source and reads its ports.
func startSource() (*sourcePeer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the source: %w", err)
	}
	p := &sourcePeer{process: exec.Command(self)}
	p.process.Env = append(os.Environ(), sourceEnv+"=1")
	p.process.Stderr = os.Stderr
	stdin, inErr := p.process.StdinPipe()
	stdout, outErr := p.process.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("start the source: %w", err)
	}
	if err := p.process.Start(); err != nil {
		return nil, fmt.Errorf("start the source: %w", err)
	}
	p.stdin = stdin
	if err := p.readAddress(stdout); err != nil {
		return nil, errors.Join(fmt.Errorf("read the source's address: %w", err), p.close())
	}
	return p, nil
}

// readAddress takes what the source prints first and trusts its certificate.
func (p *sourcePeer) readAddress(stdout io.Reader) error {
	if err := json.NewDecoder(stdout).Decode(&p.address); err != nil {
		return err
	}
	certificate, err := x509.ParseCertificate(p.address.Certificate)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	p.tls = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	return nil
}

func (p *sourcePeer) broker() bool     { return false }
func (p *sourcePeer) describe() string { return "source (own process, loopback TCP)" }

// place needs no preparation: the source never runs dry.
func (p *sourcePeer) place(_ context.Context, s scenario) (place, error) {
	address := nodeBytes
	switch {
	case s.json:
		address = nodeJSON
	case s.work == reply:
		address = nodeRequests
	}
	at := place{
		url: "amqp://" + p.address.Plain, queue: address, node: address, reply: nodeReplies,
		remove: func(context.Context) error { return nil },
	}
	if s.tls {
		at.url, at.tls = "amqps://"+p.address.TLS, p.tls
	}
	return at, nil
}

// close ends the source by closing its stdin.
func (p *sourcePeer) close() error {
	return errors.Join(p.stdin.Close(), p.process.Wait())
}

// runSourceProcess is the other end: it serves until stdin closes or
// sourceLife is over. The process's end closes what is open then.
func runSourceProcess(stdin io.Reader, stdout io.Writer) error {
	certificate, err := makeCertificate()
	if err != nil {
		return err
	}
	plain, err := listen()
	if err != nil {
		return err
	}
	secure, err := listen()
	if err != nil {
		return err
	}
	src := newSource()
	src.running.Go(func() { src.serve(plain, nil) })
	src.running.Go(func() {
		src.serve(secure, &tls.Config{Certificates: []tls.Certificate{certificate}})
	})
	err = json.NewEncoder(stdout).Encode(sourceAddress{
		Plain: plain.Addr().String(), TLS: secure.Addr().String(),
		Certificate: certificate.Certificate[0],
	})
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	src.running.Go(func() {
		_, _ = io.Copy(io.Discard, stdin) // any end of it is the end
		close(closed)
	})
	select {
	case <-closed:
		return nil
	case <-time.After(sourceLife):
		return errors.New("the source has run for too long")
	}
}

// listen opens a loopback port.
func listen() (*net.TCPListener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
}

// makeCertificate makes a self-signed one for the loopback address.
func makeCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
