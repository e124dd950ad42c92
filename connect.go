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
	opening  chan struct{}  // capacity 1: held while a session is begun, which the data plane allows one at a time
	pub      *session       // of the sending links
	lost     bool           // the loss was told; guarded by core.mu
	calls    sync.WaitGroup // calls into go-amqp whose caller may have left
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	subs, connected, err := c.mayConnect(dial != nil, cancel)
	if err != nil || connected {
		return err
	}
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
// to attach. From here on a Shutdown calls abort.
func (c *core) mayConnect(inProcess bool, abort context.CancelCauseFunc) (subs []*Subscription, connected bool, err error) {
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
	c.abort = abort
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
	announced := make(chan struct{})
	c.wg.Go(func() { conn.supervise(announced) })
	c.mu.Unlock()
	peer := conn.plane.Peer()
	c.log.Info("connected", logPeer, describe(peer.Properties), "container", peer.ContainerID)
	c.observe.connection(true, nil)
	close(announced)
	for _, s := range attached {
		s.begin()
	}
	return nil
}

// supervise notices the loss of the connection, and reports it once the
// connection was announced. Recovery begins here.
//
// Started by adopt; ends with the connection; waited for by the broker's wait
// group.
func (cn *connection) supervise(announced <-chan struct{}) {
	<-cn.plane.Done()
	c, cause := cn.c, cn.plane.Err()
	if c.isStopping() {
		return
	}
	<-announced
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
