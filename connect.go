package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// connection is one open connection: the data plane on the socket, go-amqp on
// the data plane, and the session that the sending links share.
type connection struct {
	c       *core
	plane   *dataplane.Conn
	amqp    *amqp.Conn
	dialect address.Dialect
	risky   bool // a refused attach may end its session: see probe
	holds   bool // modified with x-opt-delivery-time comes back then: see handover

	sessions sessions
	opening  chan struct{} // capacity 1: held while a session is begun, which the data plane allows one at a time
	pub      *session      // of the sending links
	health   health
}

type dialFunc func(context.Context) (net.Conn, error)

// route is how the peer is reached.
type route struct {
	targets []*target
	dial    dialFunc // of ConnectInProcess; nil for a server
}

func (c *core) route(dial dialFunc) (*route, error) {
	first, err := parseURL(c.url())
	if err == nil && first.user != nil && c.opts.Credentials != nil {
		err = errBothCredentials
	}
	if err != nil {
		return nil, &ConnectError{URL: redact(c.url()), Step: stepParse, Err: err}
	}
	if dial != nil {
		return &route{targets: []*target{first}, dial: dial}, nil
	}
	return &route{targets: append([]*target{first}, c.failover...)}, nil
}

// connect is Connect, and with dial ConnectInProcess.
func (c *core) connect(ctx context.Context, dial dialFunc) error {
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return &ConnectError{URL: redact(c.url()), Step: stepDial, Err: ctx.Err()}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	subs, connected, err := c.mayConnect(dial != nil, cancel)
	if err != nil {
		return err
	}
	if connected {
		_, err := c.await(ctx)
		return err
	}
	way, err := c.route(dial)
	if err != nil {
		return err
	}
	var failure error
	for failed := 1; ; failed++ {
		err := c.connectOnce(ctx, way, subs)
		switch {
		case err == nil || !c.opts.ConnectRetry || unattachable(err):
			return err
		case ctx.Err() != nil && failure != nil:
			return fmt.Errorf("%w: %w", failure, causeOf(ctx, nil))
		case ctx.Err() != nil:
			return err
		}
		failure = err
		if c.pause(ctx, failed, failure) != nil {
			return fmt.Errorf("%w: %w", failure, plain{causeOf(ctx, nil)})
		}
	}
}

func (c *core) connectOnce(ctx context.Context, way *route, subs []*Subscription) error {
	conn, err := c.open(ctx, way, c.opts.ConnectRetry)
	if err != nil {
		return err
	}
	if err := conn.attachAll(ctx, subs); err != nil {
		conn.undo(subs)
		return err
	}
	return c.adopt(conn, way, subs)
}

// mayConnect decides what a Connect has to do, and returns the subscriptions
// to attach. From here on a Shutdown calls abort.
func (c *core) mayConnect(inProcess bool, abort context.CancelCauseFunc) (subs []*Subscription, connected bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stop != nil:
		return nil, false, ErrShutdown
	case c.connected && c.inProcess != inProcess:
		return nil, false, ErrConnectedElsewhere
	case c.finished:
		return nil, false, c.err
	case c.connected:
		return nil, true, nil
	}
	bad := append([]error(nil), c.invalid...)
	for _, s := range c.subs {
		bad = append(bad, s.invalid)
	}
	c.abort = abort
	return append([]*Subscription(nil), c.subs...), false, errors.Join(bad...)
}

// adopt makes conn the broker's connection, and attaches what was registered
// while Connect was under way.
func (c *core) adopt(conn *connection, way *route, attached []*Subscription) error {
	c.mu.Lock()
	c.abort = nil
	if c.stop != nil {
		c.mu.Unlock()
		conn.undo(attached)
		return ErrShutdown
	}
	c.conn, c.connected, c.inProcess, c.dialect = conn, true, way.dial != nil, conn.dialect
	for _, s := range c.subs {
		if !slices.Contains(attached, s) {
			c.wg.Go(func() { s.serve(nil) })
		}
	}
	announced := make(chan struct{})
	c.wg.Go(func() { c.supervise(conn, way, announced) })
	c.mu.Unlock()
	conn.announce()
	close(announced)
	for _, s := range attached {
		s.begin()
	}
	return nil
}

// announce tells that the connection is open.
func (cn *connection) announce() {
	peer := cn.plane.Peer()
	cn.c.log.Info("connected", logPeer, describe(peer.Properties), "container", peer.ContainerID)
	cn.c.observe.connection(true, nil)
}

// attachAll attaches the subscriptions in parallel and returns the join of
// their errors.
func (cn *connection) attachAll(ctx context.Context, subs []*Subscription) error {
	cut := context.AfterFunc(ctx, func() { cn.plane.Abort(context.Cause(ctx)) })
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = s.attach(cn) })
	}
	wg.Wait()
	cut() // before the check: what it then finds open stays open
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
