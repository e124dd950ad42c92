package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// relay stands between a client and its broker on a loopback port. It sees
// every frame, and can refuse, cut and reset connections.
type relay struct {
	target string // host:port of the broker, or of a proxy before it
	addr   string // its own

	// watch, if set, is asked about each frame before it is passed on; true
	// resets the connection there. born is told of each new connection.
	watch func(*pair, frame) bool
	born  func(*pair)
	// slices, if set, writes to the client in slices of 1 to 7 bytes.
	slices bool
	// tamper, if set, may change a frame from the broker; frames are then
	// passed on as wholes.
	tamper func(frame)

	wg       sync.WaitGroup // the accept loop and two goroutines a pair
	resets   atomic.Int64   // connections that were cut on purpose
	accepted atomic.Int64

	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	pairs    map[*pair]struct{}
	most     int // unsettled on a session, of the pairs that are gone
	closed   bool
}

// pair is one connection of a client and the relay's own to the broker.
type pair struct {
	r              *relay
	client, broker *net.TCPConn
	meter          *meter
	place          int64 // where in the frame watch resets: 0 before, 1 within, 2 behind it
	once           sync.Once
}

// newRelay listens for a broker at a URL.
func newRelay(target string) (*relay, error) {
	r := &relay{target: target, pairs: map[*pair]struct{}{}, addr: "127.0.0.1:0"}
	return r, r.listen()
}

// hostOf is the host and port of a URL.
func hostOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("broker's URL: %w", err)
	}
	if u.Port() == "" {
		return u.Hostname() + ":5672", nil
	}
	return u.Host, nil
}

// through is the broker's URL with the relay's port in it, with or without its
// user.
func (r *relay) through(raw string, user bool) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	u.Host = r.addr
	if !user {
		u.User = nil
	}
	return u.String()
}

func (r *relay) listen() error {
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.addr = l, l.Addr().String()
	// Started by newRelay and accept, ends when the listener is closed, waited
	// for by close.
	r.wg.Go(func() { r.serve(l) })
	return nil
}

func (r *relay) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.connect(c.(*net.TCPConn)) })
	}
}

func (r *relay) connect(client *net.TCPConn) {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", r.target)
	if err != nil {
		reset(client)
		return
	}
	p := &pair{r: r, client: client, broker: c.(*net.TCPConn), meter: newMeter()}
	r.mu.Lock()
	if r.closed || r.listener == nil {
		r.mu.Unlock()
		p.reset()
		return
	}
	r.pairs[p] = struct{}{}
	r.mu.Unlock()
	r.accepted.Add(1)
	if r.born != nil {
		r.born(p)
	}
	if r.watch != nil && r.watch(p, frame{dir: out, header: true, code: connected}) {
		p.cut()
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(p.broker, p.client, out) })
	both.Go(func() { p.copy(p.client, p.broker, in) })
	both.Wait()
	_ = errors.Join(client.Close(), p.broker.Close()) // a cut has closed them
	r.forget(p)
}

func (r *relay) forget(p *pair) {
	p.meter.mu.Lock()
	most := p.meter.most
	p.meter.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
	r.most = max(r.most, most)
}

// copy passes bytes on until either side ends.
func (p *pair) copy(dst, src *net.TCPConn, dir direction) {
	defer p.end(dst, src)
	s := splitter{dir: dir}
	buf := make([]byte, 32<<10)
	var whole []byte
	tampering := p.r.tamper != nil && dir == in
	for {
		n, err := src.Read(buf)
		b := buf[:n]
		whole = whole[:0]
		stopped := s.push(b, func(f frame, end int) bool {
			p.meter.see(f)
			if tampering {
				p.r.tamper(f)
				whole = append(whole, f.raw...)
			}
			if p.r.watch == nil || !p.r.watch(p, f) {
				return false
			}
			b = b[:p.upTo(end, len(f.body))]
			return true
		})
		if tampering {
			b = whole
		}
		if len(b) > 0 {
			if err := p.write(dst, b, dir); err != nil {
				return
			}
		}
		if stopped {
			p.cut()
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *pair) write(dst *net.TCPConn, b []byte, dir direction) error {
	if !p.r.slices || dir == out {
		_, err := dst.Write(b)
		return err
	}
	for len(b) > 0 {
		n := min(1+rand.IntN(7), len(b))
		if _, err := dst.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// upTo is how many bytes of a frame that ends at end are let through.
func (p *pair) upTo(end, body int) int {
	switch p.place {
	case 0:
		return max(end-body-8, 0)
	case 1:
		return max(end-body/2-1, 0)
	default:
		return end
	}
}

// end passes the end of a stream on, as a half-closed socket would.
func (p *pair) end(dst, src *net.TCPConn) {
	_ = dst.CloseWrite() // it may be gone
	_ = src.CloseRead()
	p.once.Do(func() {
		// The other direction ends with its peer, or is ended soon.
		time.AfterFunc(2*time.Second, func() { _ = errors.Join(p.client.Close(), p.broker.Close()) })
	})
}

// cut resets both sides: what is in the sockets is lost.
func (p *pair) cut() {
	p.r.resets.Add(1)
	p.reset()
}

func (p *pair) reset() {
	reset(p.client)
	reset(p.broker)
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // it may be closed already
	_ = c.Close()
}

// cutAll resets every connection, and returns how many there were.
func (r *relay) cutAll() int {
	r.mu.Lock()
	pairs := make([]*pair, 0, len(r.pairs))
	for p := range r.pairs {
		pairs = append(pairs, p)
	}
	r.mu.Unlock()
	for _, p := range pairs {
		p.cut()
	}
	return len(pairs)
}

// refuse lets no connection be made until accept.
func (r *relay) refuse() {
	r.mu.Lock()
	l := r.listener
	r.listener = nil
	r.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

// unsettled is the largest number of deliveries that were unsettled on one
// session at once.
func (r *relay) unsettled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := r.most
	for p := range r.pairs {
		p.meter.mu.Lock()
		most = max(most, p.meter.most)
		p.meter.mu.Unlock()
	}
	return most
}

// close ends everything and waits for it.
func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	pairs := make([]*pair, 0, len(r.pairs))
	for p := range r.pairs {
		pairs = append(pairs, p)
	}
	r.mu.Unlock()
	r.refuse()
	for _, p := range pairs {
		p.reset()
	}
	r.wg.Wait()
}
