package dataplane

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a connection. The zero value of a field is its default.
type Options struct {
	// MaxFrame is the largest frame we take, in octets: what our OPEN announces.
	// At least 512. Default: 131072.
	MaxFrame uint32
	// Idle is how long the peer may be silent. Found within a tenth more of it.
	// A negative value means for ever. Default: 1 minute.
	Idle time.Duration
	// WriteTimeout is how long a write may make no progress. Default: 30 seconds.
	WriteTimeout time.Duration
	// CloseLinger is how long Close waits for the peer's CLOSE. Default: 1 second.
	CloseLinger time.Duration
	// OutLimit is how many octets of transfers may wait to be written before Send
	// waits for room. Default: 1 MiB.
	OutLimit int
	// MaxSessions is how many sessions we ask for. 0 means as many as the peer allows.
	MaxSessions int
	// Raw is what ends all I/O at once when closed: the socket below TLS.
	// Default: the connection itself.
	Raw io.Closer
}

const (
	defaultMaxFrame = 131072
	minMaxFrame     = 512
	defaultOutLimit = 1 << 20
)

func (o Options) withDefaults(nc net.Conn) Options {
	if o.MaxFrame == 0 {
		o.MaxFrame = defaultMaxFrame
	}
	o.MaxFrame = max(o.MaxFrame, minMaxFrame)
	o.Idle = orDefault(o.Idle, time.Minute)
	o.WriteTimeout = orDefault(o.WriteTimeout, 30*time.Second)
	o.CloseLinger = orDefault(o.CloseLinger, time.Second)
	if o.OutLimit <= 0 {
		o.OutLimit = defaultOutLimit
	}
	if o.Raw == nil {
		o.Raw = nc
	}
	return o
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Open is what the peer's OPEN says.
type Open struct {
	ContainerID string
	MaxFrame    uint32        // octets
	ChannelMax  uint16        // the highest channel number it takes
	Idle        time.Duration // what it asks of us; 0 if nothing
	Properties  map[string]any
	Offered     []string
}

// Phase is how far the opening of a connection has come.
type Phase uint8

// The phases, in order.
const (
	PhaseHeader  Phase = iota // no protocol header from the peer yet
	PhaseSASL                 // authenticating
	PhaseOpen                 // AMQP is agreed on, the peer's OPEN is missing
	PhaseRunning              // the peer's OPEN has come
)

// origins is where our counters start. Zero outside tests.
type origins struct{ transfer, delivery, count uint32 }

// Conn is the data plane of one connection and the net.Conn go-amqp speaks through.
// All methods may be called from any goroutine at any time.
type Conn struct {
	nc   net.Conn
	opts Options
	orig origins
	out  outbox
	in   inbox
	rd   reader
	wg   sync.WaitGroup

	mu       sync.Mutex
	err      error // first cause, sticky
	phase    Phase
	peer     Open
	sasl     int                   // the outcome's code, -1 before it
	saslSent int                   // octets of our largest SASL frame
	wrote    int                   // protocol of the header go-amqp wrote first, -1 before it
	expected []*Session            // BEGINs to come, in order
	sessions map[uint16]*Session   // by our channel, from BEGIN to both ENDs
	all      map[*Session]struct{} // every session not over, expected ones included
	channels int                   // sessions that count towards channel-max
	limit    int                   // channels we may have

	closing  atomic.Bool   // Close was called
	silenced atomic.Bool   // our CLOSE is out: of the peer only CLOSE matters
	down     atomic.Bool   // fail has run
	dead     chan struct{} // closed by fail
	peerGone chan struct{} // closed by the reader at the peer's CLOSE, or at its end
}

var _ net.Conn = (*Conn)(nil)

// New takes over nc, which must be connected and past any TLS handshake, and starts
// the reader and the writer. They end with the connection: by Close, by Abort, or
// by a failure.
func New(nc net.Conn, o Options) *Conn {
	c := newConn(nc, o)
	c.start()
	return c
}

func newConn(nc net.Conn, o Options) *Conn {
	c := &Conn{
		nc:       nc,
		opts:     o.withDefaults(nc),
		sasl:     -1,
		wrote:    -1,
		sessions: make(map[uint16]*Session),
		all:      make(map[*Session]struct{}),
		limit:    1 << 16,
		dead:     make(chan struct{}),
		peerGone: make(chan struct{}),
	}
	c.in.init()
	c.out.init(c.opts.OutLimit)
	c.rd.init(c)
	return c
}

func (c *Conn) start() {
	c.wg.Go(c.rd.loop)
	c.wg.Go(c.writeLoop)
}

// Peer returns what the peer's OPEN said, the zero Open before it has come.
func (c *Conn) Peer() Open {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

// Phase returns how far opening has come. It never goes back.
func (c *Conn) Phase() Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase
}

// SASLOutcome returns the code of the peer's sasl-outcome. ok is false before it
// has come.
//
// Spec: 5.3.3.6.
func (c *Conn) SASLOutcome() (code uint8, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint8(max(c.sasl, 0)), c.sasl >= 0
}

// SASLSent returns how many octets the largest SASL frame of ours had.
func (c *Conn) SASLSent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saslSent
}

// Done is closed when the connection is over and its socket closed.
func (c *Conn) Done() <-chan struct{} { return c.dead }

// Err returns the first cause of the connection's end, nil while there is none. It
// is set before Done is closed: at our CLOSE (ErrClosed), at the peer's (a
// *PeerError), or at a failure.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait returns when the reader and the writer have ended, which follows Done.
func (c *Conn) Wait() { c.wg.Wait() }

// Abort closes the socket at once, with cause as the error of whatever is still
// open; nil means ErrClosed. It never waits.
func (c *Conn) Abort(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	c.fail(cause)
}

// ExpectSession makes the session of the next BEGIN that go-amqp writes. It returns
// ErrLimit if the peer's channel-max, or our own limit, leaves no channel, and the
// connection's error if it has one. Calls and the NewSession that follows each are
// for the caller to serialize.
//
// Spec: 2.7.1 (channel-max).
func (c *Conn) ExpectSession() (*Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if c.channels >= c.limit {
		return nil, ErrLimit
	}
	s := newSession(c)
	c.channels++
	c.expected = append(c.expected, s)
	c.all[s] = struct{}{}
	return s, nil
}

// lose makes err the connection's error, if it is the first, and loses everything
// on it. What was settled before is still flushed.
func (c *Conn) lose(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	all := make([]*Session, 0, len(c.all))
	for s := range c.all {
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		s.lose(err)
	}
}

// fail is the end: the first error stays, the socket closes, everybody wakes.
func (c *Conn) fail(err error) {
	c.lose(err)
	if c.down.CompareAndSwap(false, true) {
		_ = c.opts.Raw.Close()
		close(c.dead)
	}
}

// LocalAddr returns the socket's local address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// SetDeadline does nothing: deadlines are the plane's own.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing: see Options.Idle.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: see Options.WriteTimeout.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
