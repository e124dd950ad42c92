package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/backoff"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// Broker is this process's side of one connection to an AMQP 1.0 peer, with
// the subscriptions and the publisher that share it. Make one with New. It is
// safe for concurrent use, and a copy shares the connection with its original.
//
// A zero Broker answers ErrNotConnected; registering on it panics.
type Broker struct{ c *core }

// core is what the copies of a Broker share.
type core struct {
	url     func() string // a function, so that no verb of fmt shows the password
	opts    Options
	invalid []error // bad options: Connect returns them
	codecs  codecs
	log     *slog.Logger
	observe observer
	pub     *Publisher

	failover []*target      // Options.FailoverURLs
	backoff  backoff.Policy // between attempts to connect, and to attach

	connecting chan struct{}           // capacity 1: held by the one Connect that is under way
	life       context.Context         // the broker's lifetime: ends with Shutdown, or when it is finished
	endLife    context.CancelCauseFunc // of life

	mu        sync.Mutex
	inProcess bool                    // how the first Connect connected
	connected bool                    // the first Connect has succeeded, and inProcess counts
	conn      *connection             // nil before that, and while the connection is lost
	outage    error                   // why there is none; nil while there is one
	changed   chan struct{}           // closed and replaced when there is one again
	dialect   address.Dialect         // of the last connection
	subs      []*Subscription         // in the order of registration
	stop      *stop                   // the Shutdown, once called
	abort     context.CancelCauseFunc // ends the Connect that is under way
	running   bool
	finished  bool
	err       error          // why it is finished; nil after a clean Shutdown
	done      chan struct{}  // closed when finished
	wg        sync.WaitGroup // the subscriptions' goroutines and the supervisor; waited for by Shutdown
	calls     sync.WaitGroup // calls into go-amqp whose caller may have left; waited for by Shutdown
	enders    sync.WaitGroup // Shutdown's own waits, and calls of observers, which may outlive it where a goroutine hangs
	waits     waits
}

// New returns a Broker for the peer at url: amqp, amqps or amqp+ssl, with an
// optional user and password (percent-encoded), a host, and a port if it is
// not 5672, or 5671 for amqps. opts is none, nil or one.
//
// New does no I/O and reports nothing: what is wrong with url or opts is
// reported by Connect.
func New(url string, opts ...*Options) *Broker {
	o, bad := one("New", opts).withDefaults()
	failover, wrong := parseFailover(url, &o)
	c := &core{
		url: func() string { return url }, opts: o, invalid: append(bad, wrong...), codecs: o.Codecs, log: o.Logger,
		observe:    observer{user: *o.Observer, log: o.Logger},
		failover:   failover,
		backoff:    backoff.Policy{Min: minBackoff, Max: maxBackoff},
		connecting: make(chan struct{}, 1),
		changed:    make(chan struct{}),
		done:       make(chan struct{}),
	}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.pub = newPublisher(c)
	c.waits = newWaits()
	return &Broker{c: c}
}

var errRunning = errors.New("amqpflow: run: is running already")

// Run connects unless the Broker has connected, serves until ctx ends or a
// handler returns FailFast, and shuts down within Options.ShutdownTimeout. A
// connection that is lost does not end it: see Ready and Observer.
//
// It returns nil after ctx ended and everything was drained, never ctx's
// error; the error of Connect; the error of Shutdown; or that of FailFast.
// Running twice at once is an error.
func (b *Broker) Run(ctx context.Context) error {
	if b.c == nil {
		return ErrNotConnected
	}
	c := b.c
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errRunning
	}
	c.running = true
	connected := c.connected && c.stop == nil
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
	}()
	if !connected {
		if err := b.Connect(ctx); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return nil
			}
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-c.done:
	}
	fatal := b.Err()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.ShutdownTimeout)
	defer cancel()
	err := b.Shutdown(bound)
	if fatal != nil {
		return fatal
	}
	return err
}

// Ready returns nil when the connection is open and every subscription is
// attached or paused, else one error that names everything which is not, and why:
// ErrNotConnected (with ErrAuthentication beside it where the peer refuses the
// credentials), *AttachError, ErrLinkLost. A subscription that ended is never
// ready again. It does no I/O, for a readiness probe.
func (b *Broker) Ready() error {
	if b.c == nil {
		return ErrNotConnected
	}
	c := b.c
	var missing []error
	c.mu.Lock()
	if !c.conn.usable() || c.finished || c.stop != nil {
		missing = append(missing, c.notConnectedLocked())
	}
	c.mu.Unlock()
	for _, s := range b.Subscriptions() { // core.mu and a subscription's are never held together
		if state, err := s.status(); state != Attached && state != Paused {
			missing = append(missing, s.notReady(state, err))
		}
	}
	return errors.Join(missing...)
}

func (s *Subscription) notReady(state State, err error) error {
	if err == nil {
		return fmt.Errorf("amqpflow: subscription %q: %s", s.addr, state)
	}
	return fmt.Errorf("amqpflow: subscription %q: %s: %w", s.addr, state, err)
}

// Done returns a channel that is closed when the broker is finished: after
// Shutdown, or when it failed. Err says which.
func (b *Broker) Done() <-chan struct{} {
	if b.c == nil {
		return closedChannel
	}
	return b.c.done
}

var closedChannel = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// Err returns why the broker is finished: nil while it is not, and after a
// clean Shutdown. A connection that is lost is no reason: see Ready.
func (b *Broker) Err() error {
	if b.c == nil {
		return ErrNotConnected
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.c.err
}

// Publisher returns the Broker's publisher, always the same one. It can be
// kept before Connect and used after it.
func (b *Broker) Publisher() *Publisher {
	if b.c == nil {
		return &Publisher{}
	}
	return b.c.pub
}

// Subscriptions returns the subscriptions in the order of registration.
func (b *Broker) Subscriptions() []*Subscription {
	if b.c == nil {
		return nil
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return append([]*Subscription(nil), b.c.subs...)
}

// Connect connects to the server of the Broker's URL and attaches every
// registered subscription; it returns when all of that is done.
// Options.FailoverURLs are tried where the URL's host cannot be connected to.
// From then on the broker stays connected by itself: what is lost, be it a
// link, a session or the connection, is made again, with growing delays, until
// Shutdown. Connecting once more waits, within ctx, until the connection is
// open.
//
// ctx bounds the call. It returns the join of everything that is wrong with
// the options and the registrations, before any I/O; a *ConnectError with the
// step that failed, for each URL that was tried (with ErrAuthentication in its
// chain where the peer refused the credentials); an *AttachError for each
// link that was refused; ErrConnectedElsewhere after ConnectInProcess;
// ErrShutdown after Shutdown; Err's error after a FailFast; and ErrNotConnected,
// with ctx's error, where a connection that was lost is not back when ctx ends.
// When it fails
// everything is closed again, the subscriptions are registered as before, and
// Connect may be called again. With Options.ConnectRetry it fails only for what
// is wrong with options, URL and registrations, an address that the peer has no
// form for (ErrUnsupported) among them, and when ctx ends, whose error is in the
// chain then, beside the last failure.
//
// Spec: 2.2 (version negotiation), 2.4.1 (open), 2.5.1 (begin), 2.6.3
// (attach), 5.3 (SASL).
func (b *Broker) Connect(ctx context.Context) error {
	if b.c == nil {
		return ErrNotConnected
	}
	return b.c.connect(ctx, nil)
}

// ConnectInProcess is Connect over a socket that dial returns, to a peer in
// this process: amqptest's door. It takes the user and the password from the
// Broker's URL, but no host, no port and no TLS.
func (b *Broker) ConnectInProcess(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	if b.c == nil {
		return ErrNotConnected
	}
	if dial == nil {
		panic("amqpflow: ConnectInProcess: nil dial")
	}
	return b.c.connect(ctx, dial)
}

// notConnected is ErrNotConnected with the reason.
func (c *core) notConnected() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notConnectedLocked()
}

func (c *core) notConnectedLocked() error {
	switch {
	case c.stop != nil:
		return fmt.Errorf("%w: %w", ErrNotConnected, plain{ErrShutdown})
	case c.finished && c.err != nil:
		return fmt.Errorf("%w: %s", ErrNotConnected, bare(c.err))
	case c.outage != nil:
		return fmt.Errorf("%w: %w", ErrNotConnected, plain{c.outage})
	case c.conn != nil:
		return fmt.Errorf("%w: the connection was lost", ErrNotConnected)
	default:
		return fmt.Errorf("%w: call Connect or Run first", ErrNotConnected)
	}
}

// fail ends the broker with a fatal error: Done is closed and Run returns.
func (c *core) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		c.finishLocked(err)
	}
}

// finishLocked records why the broker is finished; the first one counts.
func (c *core) finishLocked(err error) {
	if c.finished {
		return
	}
	c.finished, c.err = true, err
	close(c.done)
	c.endLife(err)
	if err != nil {
		c.log.Error("broker ended", logError, err)
	}
}

var processStart = time.Now()

// clock returns the time since the start of the process where somebody wants
// to know how long things take, else 0.
func (c *core) clock() time.Duration {
	if c.opts.Observer.Settled == nil && c.opts.Observer.Published == nil {
		return 0
	}
	return time.Since(processStart)
}

func since(started time.Duration) time.Duration {
	if started == 0 {
		return 0
	}
	return time.Since(processStart) - started
}

// hears reports whether the log or the observer wants to know of a publish's
// outcome.
func (c *core) hears(plane *dataplane.Receipt) bool {
	return c.opts.Observer.Published != nil || plane.Err() != nil || c.log.Enabled(context.Background(), slog.LevelDebug)
}
