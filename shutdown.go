package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// stop is a Shutdown, or a Close of one subscription: the first call does it,
// later ones wait for it and get the same error.
type stop struct {
	done chan struct{} // closed by the first call when err is set
	err  error
}

// wait has the grace of the first call, whose context may be the same.
func (st *stop) wait(ctx context.Context) error {
	select {
	case <-st.done:
		return st.err
	case <-ctx.Done():
	}
	end := time.NewTimer(steps * grace)
	defer end.Stop()
	select {
	case <-st.done:
		return st.err
	case <-end.C:
		return ctx.Err()
	}
}

// Shutdown ends the broker, from the inside out:
//
//  1. new publishes and subscriptions are refused (a publish from a handler
//     that still runs is let through), and the peers' credit is taken back;
//  2. running handlers finish and settle; their contexts end, with cause
//     ErrShutdown, only when ctx does;
//  3. deliveries that no handler has begun are released, oldest first in each
//     lane, which the peer does not count as an attempt;
//  4. each subscription's link is detached and its session ended;
//  5. publishes under way get their answers, and the sending links close;
//  6. the publisher's session ends;
//  7. the connection closes.
//
// Held retries are settled with step 3. Each step runs even if one before
// failed, and the error of the innermost is returned. The log and
// Observer.Shutdown tell what became of what was under way. Shutdown returns within ctx, whatever a handler or the peer does;
// a handler that does not return is logged and left behind. While the
// connection is lost there is nothing to tell a peer: attempts to connect end
// at once, publishes that wait return ErrNotConnected, handlers are waited for
// as ever, and nil means that they returned. A second call waits for the first
// and returns the same error; after Shutdown, Connect returns ErrShutdown.
//
// Called from a handler (with the handler's context, or one made from it) it
// does not wait for that handler, whose delivery goes back to the peer
// unsettled, and does not end with the handler's context: where that has no
// deadline, Options.ShutdownTimeout bounds it. Where two handlers call what would
// wait for each other, as a Shutdown and a Close do, one does not wait for the
// other's handler.
//
// Spec: 2.4.3, 2.5.2 and 2.6.6 (closing), 2.6.7 (drain).
func (b *Broker) Shutdown(ctx context.Context) error {
	if b.c == nil {
		return ErrNotConnected
	}
	c := b.c
	c.mu.Lock()
	if c.stop != nil {
		st := c.stop
		c.mu.Unlock()
		ctx, leave := c.enter(ctx, st)
		defer leave()
		return st.wait(ctx)
	}
	st := &stop{done: make(chan struct{})}
	c.stop = st
	conn, connected, abort := c.conn, c.connected, c.abort
	subs := append([]*Subscription(nil), c.subs...)
	c.mu.Unlock()
	c.endLife(ErrShutdown)
	if abort != nil {
		abort(ErrShutdown)
	}
	ctx, leave := c.enter(ctx, st)
	defer leave()
	if connected {
		st.err = c.shutdown(ctx, conn, subs, st)
	}
	for _, s := range subs {
		s.end(nil)
	}
	c.mu.Lock()
	c.finishLocked(nil)
	c.mu.Unlock()
	close(st.done)
	return st.err
}

// Close ends one subscription in the way of Shutdown: its credit is taken
// back, its handler finishes, what was not begun is released, its link is
// detached and its session ended. It returns within ctx, and the error of the
// innermost step, which wraps ErrLinkLost where the link was lost meanwhile; nil
// while the subscription is not attached. A second call
// returns the same. Called from the subscription's own handler it does not
// wait for that, as Shutdown.
func (s *Subscription) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closing != nil {
		st := s.closing
		s.mu.Unlock()
		ctx, leave := s.c.enter(ctx, st)
		defer leave()
		return st.wait(ctx)
	}
	st := &stop{done: make(chan struct{})}
	s.closing = st
	s.mu.Unlock()
	ctx, leave := s.c.enter(ctx, st)
	defer leave()
	st.err = s.stop(ctx, st)
	s.c.forget(s)
	close(st.done)
	return st.err
}

func (c *core) forget(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.subs {
		if c.subs[i] == s {
			c.subs = append(c.subs[:i:i], c.subs[i+1:]...)
			return
		}
	}
}

// enter recognises a call of a stop from a handler of this broker: until leave
// is called the handler waits for the stop. It frees the call's context from the
// handler's.
func (c *core) enter(ctx context.Context, st *stop) (bound context.Context, leave func()) {
	caller := c.worker(ctx)
	if caller == nil {
		return ctx, func() {}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(c.opts.ShutdownTimeout)
	}
	bound, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	c.waits.enter(caller, st)
	return bound, func() {
		c.waits.leave(caller, st)
		cancel()
	}
}

// worker returns the worker whose handler ctx belongs to, nil if it is none of
// this broker's.
func (c *core) worker(ctx context.Context) *worker {
	w, _ := ctx.Value(workerKey{}).(*worker)
	if w == nil || w.s.c != c {
		return nil
	}
	return w
}

// shutdown runs the seven steps. Steps 1 to 4 are those of each subscription,
// in parallel, but no link is detached before every handler has ended. conn is
// nil while the connection is lost.
func (c *core) shutdown(ctx context.Context, conn *connection, subs []*Subscription, st *stop) error {
	started := time.Now()
	var held, running int
	for _, s := range subs {
		stats := s.Stats()
		held, running = held+stats.Held, running+stats.Running
	}
	c.log.Info("shutting down", "held", held, "running", running)
	uncertain := c.pub.uncertain.Load()
	c.pub.refuse()
	settle := each(subs, func(s *Subscription) error { return s.quiesce(ctx, st) })
	late, cancel := withGrace(ctx)
	defer cancel()
	detach := each(subs, func(s *Subscription) error { return s.detach(late) })
	senders := c.pub.close(late[stepSenders])
	var session, closed error
	if conn != nil {
		session = c.pub.links.endSession(late[stepPublisher], conn)
		closed = conn.close(late[stepClose])
	}
	err := first(settle, detach, senders, session, closed)
	c.awaitGoroutines(late[stepAwait], conn)
	if conn != nil { // else its loss was told
		c.tell(c.life, func() { c.observe.connection(false, err) })
	}
	report := ShutdownReport{After: time.Since(started), Uncertain: int(c.pub.uncertain.Load() - uncertain), Err: err}
	for _, s := range subs {
		s.addTo(&report)
	}
	c.log.Info("shutdown", report.attributes()...)
	c.observe.shutdown(report)
	return err
}

// awaitGoroutines waits, within ctx, for what the connection's end has ended. What
// hangs in a function of the user's is left behind.
func (c *core) awaitGoroutines(ctx context.Context, conn *connection) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ended := make(chan struct{})
	c.enders.Go(func() {
		c.wg.Wait()
		c.calls.Wait()
		if conn != nil {
			conn.plane.Wait()
		}
		close(ended)
	})
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// close closes the connection and waits for the peer's answer within ctx; a
// goroutine that is stuck in go-amqp is freed by closing the socket. The data
// plane closes first: go-amqp would hold a mutex while the plane waits.
//
// Spec: 2.4.3.
func (cn *connection) close(ctx context.Context) error {
	if isClosed(cn.plane.Done()) {
		return cn.closeError("connection lost")
	}
	closed := make(chan struct{})
	cn.c.calls.Go(func() {
		_ = cn.plane.Close()
		_ = cn.amqp.Close()
		close(closed)
	})
	select {
	case <-closed:
	case <-ctx.Done():
		cn.plane.Abort(ctx.Err())
		<-cn.plane.Done()
	}
	return cn.closeError("close the connection")
}

// closeError is why the connection ended, nil if by our own Close.
func (cn *connection) closeError(what string) error {
	if cause := cn.plane.Err(); !errors.Is(cause, dataplane.ErrClosed) {
		return fmt.Errorf("amqpflow: %s: %w", what, goError(cause))
	}
	return nil
}

// each calls do for every item at once and returns the first error, in the
// order of the items.
func each[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = do(item) })
	}
	wg.Wait()
	return first(errs...)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
