package amqpflow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"time"

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

// attemptTimeout bounds an attempt to connect that another one follows.
const attemptTimeout = 30 * time.Second

// open makes a connection, up to the session of the sending links, to the first
// of the targets that allows it. Where others follow, each gets its share of the
// time that there is; where the attempt will be repeated it is bounded.
func (c *core) open(ctx context.Context, way *route, repeated bool) (*connection, error) {
	var failed []error
	for i, t := range way.targets {
		left := len(way.targets) - i
		bound, cancel := ctx, context.CancelFunc(func() {})
		if repeated || left > 1 {
			limit := attemptTimeout
			if deadline, ok := ctx.Deadline(); ok {
				limit = min(limit, time.Until(deadline)/time.Duration(left))
			}
			bound, cancel = context.WithTimeout(ctx, limit)
		}
		conn, err := c.openTo(bound, t, way.dial)
		cancel()
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, urlErrors(failed)
}

// urlErrors are why none of several URLs could be connected to, an error each.
// They are no errors.Join, since heals asks for less of them: one is enough.
type urlErrors []error

func (e urlErrors) Error() string   { return errors.Join(e...).Error() }
func (e urlErrors) Unwrap() []error { return e }

func (c *core) openTo(ctx context.Context, target *target, dial dialFunc) (*connection, error) {
	failed := func(step string, err error) error {
		return &ConnectError{URL: target.text, Step: step, Err: err}
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
	conn.plane = dataplane.New(socket, dataplane.Options{
		Idle: c.opts.IdleTimeout, MaxSessions: c.opts.MaxSessions, Raw: raw,
	})
	if step, err := conn.negotiate(ctx, target, sasl); err != nil {
		conn.plane.Abort(err)
		return nil, failed(step, err)
	}
	conn.health.begin()
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
		return cn.failedStep(), causeOf(ctx, cn.handshakeError(cn.cause(err), target))
	}
	cn.learn(target.host)
	if cn.pub, err = cn.newSession(); err != nil {
		return stepSession, causeOf(ctx, cn.cause(err))
	}
	if ctx.Err() != nil {
		return stepSession, context.Cause(ctx)
	}
	return "", nil
}

// maxSASLFrame is how large a SASL frame may be that every peer takes.
const maxSASLFrame = 512

// handshakeError puts into words what go-amqp says in codes.
//
// Spec: 5.3.1 (the size of SASL frames), 5.3.3.6 (sasl-code).
func (cn *connection) handshakeError(err error, target *target) error {
	code, ok := cn.plane.SASLOutcome()
	sent := cn.plane.SASLSent()
	switch {
	case ok && code == 1:
		return fmt.Errorf("%w: the peer refused the credentials (code 1)", ErrAuthentication)
	case ok && code > 1:
		return fmt.Errorf("the peer could not authenticate (code %d)", code)
	case !ok && sent > maxSASLFrame && cn.plane.Phase() == dataplane.PhaseSASL:
		return fmt.Errorf("%w: the peer took no frame of %d octets with the credentials, and need not take more than %d: %w",
			ErrAuthentication, sent, maxSASLFrame, err)
	case !ok && target.user == nil && cn.c.opts.Credentials == nil && cn.plane.Phase() == dataplane.PhaseSASL:
		return fmt.Errorf("%w: the URL has no user and password", err)
	}
	return err
}

// learn takes from the peer's OPEN what it is and how many sessions there may
// be.
func (cn *connection) learn(host string) {
	peer := cn.plane.Peer()
	product, _ := peer.Properties["product"].(string)
	version, _ := peer.Properties["version"].(string)
	known := address.Detect(product, host)
	if cn.dialect = cn.c.opts.Dialect; cn.dialect == DialectAuto {
		cn.dialect = known
	}
	cn.risky = !address.RefusesGently(known, version)
	cn.holds = address.HoldsRetries(known, version)
	limit := int(peer.ChannelMax) + 1
	if own := cn.c.opts.MaxSessions; own > 0 {
		limit = min(limit, own)
	}
	cn.sessions.init(limit)
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
		return goError(lost)
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
