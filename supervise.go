package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
)

// Recovery has three levels, each with one owner that nobody else acts for:
//
//	core.supervise      one goroutine a broker: the connection. It alone dials again.
//	Subscription.serve  one goroutine a subscription: its link, on whatever connection there is.
//	sending.ready       whoever has the turn of an address: its sending link.
//
// A lost session has no owner: the links on it are lost with it, and the first
// to attach again begins another. Who needs the connection waits in core.await.
// No lock is held while anything is waited for. Subscription.mu and core.mu are
// never held together, nor either with the link cache's.

const (
	minBackoff   = 100 * time.Millisecond // the bound of the first delay
	maxBackoff   = 30 * time.Second       // the bound that it doubles up to
	healthyAfter = 10 * time.Second       // what lasted so long did not fail
)

// health is whether a link or a connection was of use: it moved a delivery, or
// lasted. Only that makes the next delay short again; an attach that succeeds
// does not, since what follows it may fail every time.
type health struct {
	since time.Time
	moved atomic.Bool
}

func (h *health) begin() { h.since = time.Now() }

// move is called for each delivery: it writes no shared memory twice.
func (h *health) move() {
	if !h.moved.Load() {
		h.moved.Store(true)
	}
}

func (h *health) good() bool { return h.moved.Load() || time.Since(h.since) >= healthyAfter }

// supervise replaces the connection when it is lost, for as long as the broker
// lives.
//
// Started by adopt; ends with the broker's life; waited for by the broker's
// wait group; alone in replacing core.conn.
func (c *core) supervise(conn *connection, way *route, announced <-chan struct{}) {
	failed := 0
	for conn != nil {
		<-conn.plane.Done()
		lost := time.Now()
		select {
		case <-announced:
		case <-c.life.Done():
		}
		if !c.lose(conn) {
			return
		}
		if failed++; conn.health.good() {
			failed = 1
		}
		conn, failed = c.reconnect(way, lost, failed)
	}
}

// lose takes a lost connection out, reports it, and says whether another is
// wanted. While the broker shuts down that is Shutdown's to report.
func (c *core) lose(conn *connection) bool {
	lost := fmt.Errorf("amqpflow: connection lost: %w", plain{goError(conn.plane.Err())})
	c.mu.Lock()
	stopping, finished := c.stop != nil, c.finished
	if !stopping {
		c.conn, c.outage = nil, lost
	}
	c.mu.Unlock()
	if stopping {
		return false
	}
	c.log.Warn("connection lost", logError, lost)
	c.tell(c.life, func() { c.observe.connection(false, lost) })
	c.calls.Go(func() {
		_ = conn.amqp.Close()
		conn.plane.Wait()
	})
	return !finished
}

// reconnect dials until there is a connection, and makes it the broker's. It
// returns none once the broker's life has ended.
func (c *core) reconnect(way *route, lost time.Time, failed int) (*connection, int) {
	cause := error(nil)
	for attempt := 1; ; attempt++ {
		if c.pause(c.life, failed, cause) != nil {
			return nil, failed
		}
		conn, err := c.redial(way)
		if err == nil {
			if !c.readopt(conn) {
				return nil, failed
			}
			c.log.Info("recovered", logPeer, describe(conn.plane.Peer().Properties), logAfter, time.Since(lost), logAttempts, attempt)
			return conn, failed
		}
		if c.life.Err() != nil {
			return nil, failed
		}
		failed++
		cause = err
		c.mu.Lock()
		c.outage = err
		c.mu.Unlock()
		if refusal := lasting(err); refusal != nil {
			c.tell(c.life, func() {
				c.observe.connection(false, refusal)
				c.observe.error(refusal)
			})
		}
	}
}

// redial is open, in which a panic of the user's functions is a failure.
func (c *core) redial(way *route) (conn *connection, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("amqpflow: connect: panic: %v", v)
			c.log.Error("connecting panicked", logError, err, "stack", string(debug.Stack()))
		}
	}()
	return c.open(c.life, way, true)
}

// readopt makes conn the broker's connection, unless the broker is over.
func (c *core) readopt(conn *connection) bool {
	c.tell(c.life, conn.announce)
	c.mu.Lock()
	over := c.stop != nil || c.finished
	if !over {
		c.conn, c.outage, c.dialect = conn, nil, conn.dialect
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.mu.Unlock()
	if over {
		conn.undo(nil)
		c.tell(c.life, func() { c.observe.connection(false, nil) })
	}
	return !over
}

// delay returns how long to wait before the attempt that follows failed ones,
// the last of which failed with cause, nil where that was a loss.
func (c *core) delay(failed int, cause error) time.Duration {
	if !heals(cause) {
		return c.backoff.Max
	}
	return c.backoff.Delay(failed)
}

// pause waits before the attempt that follows failed ones, the last of which
// failed with cause, nil where that was a loss.
func (c *core) pause(ctx context.Context, failed int, cause error) error {
	delay := c.delay(failed, cause)
	if cause != nil {
		c.log.Warn("connect failed", logAttempt, failed, logDelay, delay, logError, cause)
	}
	return c.backoff.Wait(ctx, delay)
}

// heals reports whether time alone may make what failed with err succeed: with
// one of several URLs, and with all of several links. What it will not heal is
// tried at the longest delay, since somebody may come and repair it.
//
// Spec: 2.8.15 (amqp-error).
func heals(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it visits each error of the tree by itself
	case urlErrors:
		return slices.ContainsFunc(e, heals)
	case *amqp.Error:
		return e.Condition != amqp.ErrCondUnauthorizedAccess && e.Condition != amqp.ErrCondNotFound && e.Condition != amqp.ErrCondNotAllowed
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), lasts)
	case interface{ Unwrap() error }:
		return heals(e.Unwrap())
	default:
		return !errors.Is(err, ErrAuthentication)
	}
}

func lasts(err error) bool { return !heals(err) }

// lasting is what of err time alone will not heal, nil if there is none.
func lasting(err error) error {
	if urls, several := errors.AsType[urlErrors](err); several {
		return errors.Join(slices.DeleteFunc(slices.Clone(urls), heals)...)
	}
	if heals(err) {
		return nil
	}
	return err
}

// usable reports whether links can be attached on the connection.
func (cn *connection) usable() bool { return cn != nil && cn.plane.Err() == nil }

// await returns the open connection, and waits for it while it is lost. The
// error is ErrNotConnected with its reason, and the error of ctx where that
// ended first.
func (c *core) await(ctx context.Context) (*connection, error) {
	for {
		c.mu.Lock()
		conn, changed := c.conn, c.changed
		c.mu.Unlock()
		if conn.usable() {
			return conn, nil
		}
		if c.life.Err() != nil {
			return nil, c.notConnected()
		}
		select {
		case <-changed:
		case <-c.life.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", c.notConnected(), causeOf(ctx, nil))
		}
	}
}
