package amqptest

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/amqpflow/amqpflow"
)

// Options of a Server. The zero value, and nil, mean the defaults.
type Options struct {
	// Dialect is the broker that the server answers as: DialectGeneric,
	// DialectArtemis or DialectRabbitMQ. The table under Dialects in the
	// documentation of the package says what that is.
	//
	// Default: DialectGeneric.
	Dialect amqpflow.Dialect
	// Users are the passwords by user name. When there are any, a client must
	// authenticate as one of them by SASL PLAIN, or by EXTERNAL where External
	// is set.
	//
	// Default: none; unless External is set everyone is let in, by PLAIN with
	// any name and password, by ANONYMOUS, or without a SASL layer.
	Users map[string]string
	// External offers SASL EXTERNAL and decides about each client that chooses
	// it: an error turns it away. identity is whom the client asks to be, ""
	// for whoever its certificate names; nc is its connection, a *tls.Conn
	// under a listener of tls.NewListener, with the client's certificates in
	// ConnectionState. It is called on the goroutine that reads nc, which it
	// must neither read nor write, and may call the server, but for Close.
	//
	// Default: EXTERNAL is not offered.
	External func(identity string, nc net.Conn) error
	// MaxFrameSize is the largest frame in bytes that a client may send, at
	// least 512. What the server sends is bounded by the client's own.
	//
	// Default: 131072.
	MaxFrameSize uint32
	// Window is the incoming window of each session: how many transfer
	// frames a client may send before it hears from the server again.
	//
	// Default: 2048; 2147483647 in DialectArtemis, 400 in DialectRabbitMQ.
	Window uint32
	// ChannelMax is the highest channel number that a client may use, which
	// allows one session more than that.
	//
	// Default: 65535; 63 in DialectRabbitMQ.
	ChannelMax uint16
	// HandleMax is the highest handle that a client may use in a session.
	//
	// Default: 4294967295; 65535 in DialectArtemis, 255 in DialectRabbitMQ.
	HandleMax uint32
	// IdleTimeout is how long a client may be silent before its connection
	// is closed with amqp:resource-limit-exceeded. Half of it is announced.
	// From 2 milliseconds to 90 days.
	//
	// Default: for ever; 1 minute in DialectArtemis and DialectRabbitMQ.
	IdleTimeout time.Duration
	// MaxDeliveries is how often a message is delivered at most: a failed
	// attempt that brings its delivery-count up to this number makes it a
	// dead letter. A negative value means no limit.
	//
	// Default: 10; 21 in DialectRabbitMQ.
	MaxDeliveries int
	// Trace gets a debug record for each frame, with the fields of Frame. It is
	// called while the server is locked: its handler may not call the server.
	//
	// Default: none.
	Trace *slog.Logger
	// Logger gets a record for each connection, link and fault.
	//
	// Default: discards.
	Logger *slog.Logger
}

const (
	defaultMaxFrameSize = 131072
	minMaxFrameSize     = 512 // Spec: 2.8.19, MIN-MAX-FRAME-SIZE
	minIdleTimeout      = 2 * time.Millisecond
	maxIdleTimeout      = 90 * 24 * time.Hour // half of it is milliseconds in 32 bits
)

func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
		r.Users = maps.Clone(o.Users)
	}
	var errs []error
	if r.MaxFrameSize != 0 && r.MaxFrameSize < minMaxFrameSize {
		errs = append(errs, fmt.Errorf("amqptest: Options.MaxFrameSize: %d is below %d", r.MaxFrameSize, minMaxFrameSize))
	}
	if r.IdleTimeout != 0 && r.IdleTimeout < minIdleTimeout {
		errs = append(errs, fmt.Errorf("amqptest: Options.IdleTimeout: %v is below %v", r.IdleTimeout, minIdleTimeout))
	}
	if r.IdleTimeout > maxIdleTimeout {
		errs = append(errs, fmt.Errorf("amqptest: Options.IdleTimeout: %v is above %v", r.IdleTimeout, maxIdleTimeout))
	}
	d := dialects[r.Dialect]
	if d == nil {
		errs = append(errs, fmt.Errorf("amqptest: Options.Dialect: %s is not modelled", r.Dialect))
		r.Dialect, d = amqpflow.DialectGeneric, generic
	}
	r.MaxFrameSize = or(r.MaxFrameSize, defaultMaxFrameSize)
	r.Window = or(r.Window, d.window)
	r.ChannelMax = or(r.ChannelMax, d.channelMax)
	r.HandleMax = or(r.HandleMax, d.handleMax)
	r.IdleTimeout = or(r.IdleTimeout, d.idleTimeout)
	r.MaxDeliveries = or(r.MaxDeliveries, d.maxDeliveries)
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r, errors.Join(errs...)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// ErrClosed is returned by the methods of a Server after Close.
var ErrClosed = errors.New("amqptest: the server is closed")

// Server is an AMQP 1.0 broker in memory. Make one with NewServer and end it
// with Close. All its methods are safe for concurrent use.
//
// One mutex guards the queues and the state of every connection. It is held
// while the frames of one read are handled, and never across I/O or a wait:
// what is to be sent goes into the connection's buffer, which its writer
// swaps and sends.
type Server struct {
	opts Options
	err  error // a bad option: returned by every later call
	log  *slog.Logger

	dialect *dialect

	wg sync.WaitGroup // two goroutines per connection, one for URL's listener

	mu        sync.Mutex
	closed    bool
	finished  chan struct{} // closed by Close when everything has ended
	url       string
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	connected uint64             // connections so far
	attached  map[linkName]*link // by name, where names are one's own
	nodes     map[string]*node
	anonymous *node  // the node of targets without an address
	dynamics  uint64 // dynamic nodes made so far
	faulty
	exchanges  map[string]*exchange // of RabbitMQ
	patterns   map[string]*node     // topics of Artemis whose name is a pattern
	agenda     agenda
	trace      trace
	now        time.Time                // of clock; zero: not asked for since lock
	watched    testing.TB               // shows the frames if it fails
	timers     map[*time.Timer]struct{} // of later
	violations []error                  // and what URL could not do
	waiters    []chan struct{}          // of Idle; closed by the server

	// Work that unlock does before it lets go of the mutex.
	dirty   []*queue   // may have something to deliver
	owing   []*session // have dispositions or flows to send
	touched []*conn    // have something to write
	cut     []*conn    // their sockets are to be closed
}

// NewServer returns a Server without any I/O or goroutine. opts is none, nil
// or one. A bad option is returned by every later call, and by Close.
func NewServer(opts ...*Options) *Server {
	if len(opts) > 1 {
		panic("amqptest: NewServer: more than one *Options")
	}
	var given *Options
	if len(opts) == 1 {
		given = opts[0]
	}
	o, err := given.withDefaults()
	s := &Server{
		opts: o, err: err, log: o.Logger, dialect: dialects[o.Dialect],
		finished:  make(chan struct{}),
		listeners: map[net.Listener]struct{}{},
		conns:     map[*conn]struct{}{},
		attached:  map[linkName]*link{},
		timers:    map[*time.Timer]struct{}{},
		nodes:     map[string]*node{},
		patterns:  map[string]*node{},
	}
	s.anonymous = &node{srv: s, kind: kindAnonymous}
	if s.dialect == rabbitMQ {
		s.exchanges = exchangesOf(s)
	}
	return s
}

// Close closes the listeners and every connection, with the condition
// amqp:connection:forced where a client is still there, and waits until all
// of the server's goroutines have ended: at most 1 second for a client that
// does not answer.
//
// It returns the join of the bad options and of every rule of the protocol
// that a client broke. A second Close returns the same.
func (s *Server) Close() error {
	s.lock()
	first := !s.closed
	s.closed = true
	var listeners []net.Listener
	if first {
		s.stopTimers()
		s.heal()
		for l := range s.listeners {
			listeners = append(listeners, l)
		}
		for c := range s.conns {
			c.shut(&errServerClosed)
		}
	}
	s.unlock()
	for _, l := range listeners {
		_ = l.Close() // Serve reports it, and it is closed either way
	}
	if first {
		s.wg.Wait()
		close(s.finished)
	}
	<-s.finished
	return s.broken()
}

// broken joins the bad options and the rules that were broken so far.
func (s *Server) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append([]error{s.err}, s.violations...)...)
}

// usable is nil unless the options were bad or the server is closed.
func (s *Server) usable() error {
	if s.err != nil {
		return s.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

func (s *Server) lock() {
	s.mu.Lock()
	s.now = time.Time{}
}

// unlock brings everything that the caller set going to its end, wakes the
// writers, and lets go of the mutex.
func (s *Server) unlock() {
	s.quiesce()
	for _, c := range s.touched {
		c.touched = false
		c.signal()
	}
	s.touched = s.touched[:0]
	cut := s.cut
	s.cut = nil
	s.mu.Unlock()
	for _, c := range cut {
		c.closeRaw()
	}
}

// quiesce delivers what can be delivered, sends what is owed and tells Idle.
func (s *Server) quiesce() {
	s.fireFaults()
	for len(s.dirty) > 0 {
		q := s.dirty[len(s.dirty)-1]
		s.dirty = s.dirty[:len(s.dirty)-1]
		q.dirty = false
		q.pump()
	}
	for len(s.owing) > 0 {
		ses := s.owing[len(s.owing)-1]
		s.owing = s.owing[:len(s.owing)-1]
		ses.owing = false
		ses.flush()
	}
	if len(s.waiters) > 0 && s.idleLocked() {
		for _, w := range s.waiters {
			close(w)
		}
		s.waiters = nil
	}
}
