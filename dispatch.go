package amqpflow

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// The path of one delivery, from the socket to its disposition:
//
//	dataplane.Conn          the connection's one reader: frames become deliveries, each payload copied once
//	└ receiving.collect     by a worker that waits, or by the link's goroutine: takes deliveries, refuses what no handler may see
//	  ├ receiving.read      finds the sections; the body and the headers are slices of the payload
//	  └ inbox               one, or one a lane; bounded by the link's credit
//	    └ worker.run        one loop, n workers on one inbox, or n lanes
//	      └ worker.next     one delivery, or a batch
//	        └ worker.call   middleware and handler, with panics and runtime.Goexit caught
//	          ├ decodeBody  bytes to T, by content-type (for a batch before the call)
//	          ├ Handler     the user's function
//	          └ reply       encoded into the worker's reused buffer, sent, waited for
//	        └ worker.finish error to outcome: Mark, OnFailure, stateOf
//	          ├ settleAs    exactly once: dataplane.Link.Settle, then Grant
//	          └ failed      held, handed over to the peer, or dead-lettered; then settled

// worker calls the handler, for one delivery or one batch at a time.
type worker struct {
	s     *Subscription
	in    *inbox
	size  int         // of a batch; 1 without
	taken []*Delivery // run's alone, reused
	ready []*Delivery // run's alone, reused: what of a batch is decoded
	ids   []uint32    // run's alone, reused: what of a batch is accepted at once
	shown []*Delivery // run's alone, reused: what middleware may change, Call.Deliveries
	call  Call        // run's alone, reused
	reply []byte      // run's alone: the buffer of its replies
	stuck bool        // run's alone: reportStuck has said so of the current delivery

	resume chan struct{} // capacity 1; who ends the hold of again sends, reattempt receives

	mu      sync.Mutex
	current []*Delivery // what its handler has, nil between two calls
	again   *held       // current waits for its next attempt; run alone writes it
	link    *receiving
	ctx     context.Context // of the deliveries of link, a lifetime: ends with it
	stop    context.CancelCauseFunc
	left    chan struct{} // closed and replaced whenever a call has ended, or waits for a stop, and somebody waits
}

// workerKey finds the worker in a handler's context.
type workerKey struct{}

func newWorker(s *Subscription, in *inbox, size int) *worker {
	return &worker{s: s, in: in, size: size, call: Call{Subscription: s}, resume: make(chan struct{}, 1)}
}

// run calls the handler for the inbox's deliveries, oldest first.
//
// Started by begin; ends when the inbox is closed or the subscription stops;
// waited for by the subscription's wait group; alone in what its fields say.
func (w *worker) run() {
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in a handler: go on in another goroutine
			w.s.running.Go(w.run)
		}
	}()
	for {
		ds, ctx, more := w.wait()
		switch {
		case len(ds) > 0:
			w.deliver(ctx, ds)
		case !more:
			returned = true
			return
		}
	}
}

// wait is next after a wait for something to do. It may come back without any.
func (w *worker) wait() (ds []*Delivery, ctx context.Context, more bool) {
	switch {
	case w.again != nil:
		ds, ctx = w.reattempt()
		return ds, ctx, true
	case w.size > 1:
		return w.nextBatch()
	}
	if ds, ctx, more = w.next(); len(ds) == 0 && more {
		w.s.await(w.in, nil)
	}
	return ds, ctx, more
}

// next makes the inbox's oldest deliveries the worker's current ones, and
// returns them with the context of their link. Without any, more says whether
// others may come. Taking and beginning are one step, so that a delivery is
// always either in an inbox or some worker's current one.
func (w *worker) next() (ds []*Delivery, ctx context.Context, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if w.s.stopping.Load() {
			w.in.signal() // for the next worker on this inbox
			return nil, nil, false
		}
		var closed bool
		if w.taken, closed = w.in.take(w.taken[:0], w.size); len(w.taken) == 0 {
			return nil, nil, !closed
		}
		from := w.taken[0].from
		if isClosed(from.link.Done()) {
			continue
		}
		if w.link != from || w.ctx.Err() != nil {
			w.beginLocked(from)
		}
		w.current = w.taken
		return w.taken, w.ctx, true
	}
}

// beginLocked makes the context of a link's deliveries.
func (w *worker) beginLocked(from *receiving) {
	w.link = from
	w.ctx, w.stop = context.WithCancelCause(context.WithValue(context.Background(), workerKey{}, w))
}

func (w *worker) deliver(ctx context.Context, ds []*Delivery) {
	if timeout := w.s.opts.HandlerTimeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	started := w.s.c.clock()
	if started != 0 {
		for _, d := range ds {
			d.at = started
		}
	}
	if w.s.prepare != nil {
		if ds = w.prepared(ds, started); len(ds) == 0 {
			w.leave()
			return
		}
	}
	w.shown = append(w.shown[:0], ds...)
	w.call.Deliveries = w.shown
	err := w.invoke(ctx, ds, started)
	w.finish(ds, err, started)
	clear(w.shown)
	if w.again == nil {
		clear(w.taken)
		clear(w.ready)
	}
}

// panicked is the failure of a handler that ended with value, nil after
// runtime.Goexit. It is called while the stack is there to be seen.
func (w *worker) panicked(d *Delivery, value any) *PanicError {
	failure := &PanicError{Address: w.s.addr, Value: value, Stack: debug.Stack()}
	w.s.c.log.Error("handler panicked", logAddress, string(w.s.addr), logMessage, d.MessageID(), logAttempt, d.Attempt(),
		logError, failure.Error(), "stack", string(failure.Stack))
	return failure
}

// invoke calls middleware and handler. A panic is their error; after
// runtime.Goexit it finishes the deliveries itself, since nothing behind it
// runs any more.
func (w *worker) invoke(ctx context.Context, ds []*Delivery, started time.Duration) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		failure := w.panicked(ds[0], value)
		if value == nil {
			w.finish(ds, failure, started)
		}
		err = failure
	}()
	err = w.s.handle(ctx, &w.call)
	returned = true
	return err
}

// finish settles what the handler has not settled, and ends the call, even where
// runtime.Goexit in an observer lets nothing behind it run.
func (w *worker) finish(ds []*Delivery, err error, started time.Duration) {
	defer func() {
		switch {
		case len(ds) > 0:
			w.finish(ds, err, started)
		case w.again == nil:
			w.leave()
		}
	}()
	if len(ds) > 1 && err == nil {
		all := ds
		ds = nil // they are settled before any is told of
		ds = w.acceptAll(all, started)
	}
	for len(ds) > 0 {
		d := ds[0]
		ds = ds[1:]
		w.s.finish(w.ctx, d, err, started, w.lane())
	}
}

// leave ends the worker's current call.
func (w *worker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current, w.stuck = nil, false
	w.tellLocked()
}

// tellLocked wakes who waits in settled.
func (w *worker) tellLocked() {
	if w.left != nil {
		close(w.left)
		w.left = nil
	}
}

// takenBack cancels the handler of a delivery that the peer took back, if this
// worker has it.
func (w *worker) takenBack(r *receiving, id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.current {
		if d.from == r && d.id == id {
			w.stop(dataplane.ErrTakenBack)
		}
	}
}

// cancel ends the context of a link's handlers.
func (w *worker) cancel(r *receiving, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link == r && w.stop != nil {
		w.stop(cause)
	}
}

// abandon ends the context of the running handler, whatever its link.
func (w *worker) abandon(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil && w.stop != nil {
		w.stop(cause)
	}
}

// busy returns how many deliveries the worker's handler has.
func (w *worker) busy() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again != nil {
		return 0
	}
	return len(w.current)
}

// unsettled returns how many of those are not settled.
func (w *worker) unsettled() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.current {
		if d != nil && d.status.Load() != statusSettled {
			n++
		}
	}
	return n
}

// settled waits until the worker has no delivery, or its handler waits for st,
// or until ctx ends.
func (w *worker) settled(ctx context.Context, st *stop) error {
	waits := &w.s.c.waits
	defer waits.awaited(st, w)
	for {
		w.mu.Lock()
		if w.current == nil {
			w.mu.Unlock()
			return nil
		}
		if w.left == nil {
			w.left = make(chan struct{})
		}
		left := w.left
		w.mu.Unlock()
		if !waits.mayAwait(st, w) {
			return nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
