package amqpflow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// The steps of ConnectError.
const (
	stepParse   = "parse"
	stepDial    = "dial"
	stepTLS     = "tls"
	stepSASL    = "sasl"
	stepOpen    = "open"
	stepSession = "session"
)

// connection is one open connection: the data plane on the socket, go-amqp on
// the data plane, and the session that the sending links share.
type connection struct {
	c       *core
	plane   *dataplane.Conn
	amqp    *amqp.Conn
	dialect address.Dialect
	opening chan struct{} // capacity 1: held while a session is begun, which the data plane allows one at a time
	pub     *session
	lost    bool           // the loss was told; guarded by core.mu
	calls   sync.WaitGroup // calls into go-amqp whose caller may have left
}

type dialFunc func(context.Context) (net.Conn, error)

// connect is Connect, and with dial ConnectInProcess.
func (c *core) connect(ctx context.Context, dial dialFunc) error {
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return &ConnectError{URL: redact(c.url()), Step: stepDial, Err: ctx.Err()}
	}
	subs, connected, err := c.mayConnect(dial != nil)
	if err != nil || connected {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	c.abort = cancel
	c.mu.Unlock()

	conn, err := c.open(ctx, dial)
	if err != nil {
		return err
	}
	if err := conn.attachAll(ctx, subs); err != nil {
		conn.undo(subs)
		return err
	}
	return c.adopt(conn, dial != nil, subs)
}

// mayConnect decides what a Connect has to do, and returns the subscriptions
// to attach.
func (c *core) mayConnect(inProcess bool) (subs []*Subscription, connected bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stop != nil:
		return nil, false, ErrShutdown
	case c.chosen && c.inProcess != inProcess:
		return nil, false, ErrConnectedElsewhere
	case c.finished:
		return nil, false, c.err
	case c.conn != nil:
		return nil, true, nil
	}
	bad := append([]error(nil), c.invalid...)
	for _, s := range c.subs {
		bad = append(bad, s.invalid)
	}
	return append([]*Subscription(nil), c.subs...), false, errors.Join(bad...)
}

// adopt makes conn the broker's connection, and attaches what was registered
// while Connect was under way.
func (c *core) adopt(conn *connection, inProcess bool, attached []*Subscription) error {
	c.mu.Lock()
	c.abort = nil
	if c.stop != nil {
		c.mu.Unlock()
		conn.undo(attached)
		return ErrShutdown
	}
	c.conn, c.chosen, c.inProcess = conn, true, inProcess
	for _, s := range c.subs {
		if !slices.Contains(attached, s) {
			c.wg.Go(func() { s.attachLater(conn) })
		}
	}
	c.mu.Unlock()
	peer := conn.plane.Peer()
	c.log.Info("connected", logPeer, describe(peer.Properties), "container", peer.ContainerID)
	c.observe.connection(true, nil)
	for _, s := range attached {
		s.begin()
	}
	c.wg.Go(conn.supervise)
	return nil
}

// supervise notices the loss of the connection. Recovery begins here.
//
// Started by adopt; ends with the connection; waited for by the broker's wait
// group.
func (cn *connection) supervise() {
	<-cn.plane.Done()
	c, cause := cn.c, cn.plane.Err()
	c.mu.Lock()
	stopping := c.stop != nil
	cn.lost = !stopping
	subs := append([]*Subscription(nil), c.subs...)
	c.mu.Unlock()
	if stopping {
		return
	}
	cause = fmt.Errorf("connection lost: %w", goError(cause))
	lost := fmt.Errorf("amqpflow: %w", cause)
	c.log.Warn("connection lost", logError, lost)
	c.observe.connection(false, lost)
	for _, s := range subs {
		s.end(s.lost(cause))
	}
	c.fail(lost)
}

// open makes the connection, up to the session of the sending links.
func (c *core) open(ctx context.Context, dial dialFunc) (*connection, error) {
	failed := func(step string, err error) error {
		return &ConnectError{URL: redact(c.url()), Step: step, Err: err}
	}
	target, err := parseURL(c.url())
	if err == nil && target.user != nil && c.opts.Credentials != nil {
		err = errors.New("user-info in the URL together with Options.Credentials")
	}
	if err != nil {
		return nil, failed(stepParse, err)
	}
	sasl, err := c.credentials(ctx, target)
	if err != nil {
		return nil, failed(stepSASL, err)
	}
	raw, err := c.dial(ctx, target, dial)
	if err != nil {
		return nil, failed(stepDial, causeOf(ctx, err))
	}
	socket := raw
	if target.tls && dial == nil {
		if socket, err = c.secure(ctx, raw, target.host); err != nil {
			return nil, failed(stepTLS, causeOf(ctx, err))
		}
	}
	conn := &connection{c: c, opening: make(chan struct{}, 1)}
	conn.plane = dataplane.New(socket, dataplane.Options{Idle: c.opts.IdleTimeout, Raw: raw})
	if step, err := conn.negotiate(ctx, target, sasl); err != nil {
		conn.plane.Abort(err)
		return nil, failed(step, err)
	}
	return conn, nil
}

func (c *core) credentials(ctx context.Context, target *target) (amqp.SASLType, error) {
	switch {
	case c.opts.Credentials != nil:
		sasl, err := c.opts.Credentials(ctx)
		if err == nil && sasl == nil {
			err = errors.New("Options.Credentials returned no mechanism")
		}
		return sasl, err
	case target.user != nil:
		password, _ := target.user.Password()
		return amqp.SASLTypePlain(target.user.Username(), password), nil
	default:
		return amqp.SASLTypeAnonymous(), nil
	}
}

func (c *core) dial(ctx context.Context, target *target, dial dialFunc) (nc net.Conn, err error) {
	switch {
	case dial != nil:
		nc, err = dial(ctx)
	case c.opts.DialContext != nil:
		nc, err = c.opts.DialContext(ctx, "tcp", target.addr())
	default:
		nc, err = new(net.Dialer).DialContext(ctx, "tcp", target.addr())
	}
	if err == nil && nc == nil {
		err = errors.New("the dial function returned no connection")
	}
	return nc, err
}

func (c *core) secure(ctx context.Context, raw net.Conn, host string) (net.Conn, error) {
	config := c.opts.TLS.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName = host
	}
	secured := tls.Client(raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return secured, nil
}

// negotiate runs go-amqp's handshake over the data plane and begins the
// session of the sending links. When ctx ends it gives up by closing the
// socket, which frees go-amqp.
func (cn *connection) negotiate(ctx context.Context, target *target, sasl amqp.SASLType) (step string, err error) {
	cut := context.AfterFunc(ctx, func() { cn.plane.Abort(context.Cause(ctx)) })
	defer cut()
	c := cn.c
	hostname := c.opts.Hostname
	if hostname == "" {
		hostname = target.host
	}
	cn.amqp, err = amqp.NewConn(context.Background(), cn.plane, &amqp.ConnOptions{
		ContainerID: c.opts.ContainerID, HostName: hostname, IdleTimeout: c.opts.IdleTimeout,
		Properties: c.opts.Properties, SASLType: sasl,
	})
	if err != nil {
		return cn.failedStep(), causeOf(ctx, cn.cause(err))
	}
	product, _ := cn.plane.Peer().Properties["product"].(string)
	if cn.dialect = c.opts.Dialect; cn.dialect == DialectAuto {
		cn.dialect = address.Detect(product, target.host)
	}
	if cn.pub, err = cn.begin(); err != nil {
		return stepSession, causeOf(ctx, cn.cause(err))
	}
	if ctx.Err() != nil {
		return stepSession, context.Cause(ctx)
	}
	return "", nil
}

// failedStep tells from how far the handshake came which step failed.
func (cn *connection) failedStep() string {
	if code, ok := cn.plane.SASLOutcome(); ok && code == 0 {
		return stepOpen
	}
	return stepSASL
}

// cause prefers the data plane's word on why the connection ended: go-amqp
// hides several reasons, such as an error in the peer's CLOSE.
func (cn *connection) cause(err error) error {
	if lost := cn.plane.Err(); lost != nil && !errors.Is(lost, dataplane.ErrClosed) {
		return lost
	}
	return err
}

// causeOf is err, or why ctx ended where that is the reason.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrShutdown) {
		return cause
	}
	return ctx.Err()
}

// attachAll attaches the subscriptions in parallel and returns the join of
// their errors.
func (cn *connection) attachAll(ctx context.Context, subs []*Subscription) error {
	cut := context.AfterFunc(ctx, func() { cn.plane.Abort(context.Cause(ctx)) })
	defer cut()
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = s.attach(cn) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		for i, s := range subs {
			if errs[i] != nil {
				errs[i] = &AttachError{Address: s.addr, Err: causeOf(ctx, nil)}
			}
		}
		if len(subs) == 0 || errors.Join(errs...) == nil {
			return &ConnectError{URL: redact(cn.c.url()), Step: stepSession, Err: causeOf(ctx, nil)}
		}
	}
	return errors.Join(errs...)
}

// undo closes a connection that Connect could not complete, and takes its
// subscriptions back to Registered.
func (cn *connection) undo(subs []*Subscription) {
	cn.plane.Abort(errUndone)
	_ = cn.amqp.Close()
	for _, s := range subs {
		s.detached()
	}
}

var errUndone = errors.New("connect failed")

func defaultProperties() map[string]any {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/amqpflow/amqpflow" {
				version = dep.Version
			}
		}
	}
	return map[string]any{
		"product":  "amqpflow",
		"version":  version,
		"platform": runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// describe names a peer for the log by its open properties.
func describe(properties map[string]any) string {
	product, _ := properties["product"].(string)
	version, _ := properties["version"].(string)
	if product == "" {
		return "unknown"
	}
	if version == "" {
		return product
	}
	return product + " " + version
}
