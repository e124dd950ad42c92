package amqpflow

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

// The path of one delivery, from the socket to its disposition:
//
//	dataplane.Conn        the connection's one reader: frames become deliveries, each payload copied once
//	└ receiving.run       one goroutine a link: takes deliveries, refuses what no handler may see
//	  ├ receiving.read    finds the sections; the body and the headers are slices of the payload
//	  └ inbox             bounded by the link's credit
//	    └ worker.run      the dispatch loop
//	      └ worker.call   the handler, with its panics and runtime.Goexit caught
//	        ├ decodeBody  bytes to T, by content-type
//	        └ Handler     the user's function
//	      └ worker.finish error to outcome: OnFailure, stateOf
//	        └ settleAs    exactly once: dataplane.Link.Settle, then Grant

// inbox holds the deliveries that no handler has begun, oldest first. The
// link's credit bounds it.
type inbox struct {
	ready chan struct{} // capacity 1; push and close send, the dispatch loop receives, nobody closes it

	mu     sync.Mutex
	items  []*Delivery
	head   int
	closed bool
}

// close wakes the dispatch loop for the last time.
func (in *inbox) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.signal()
}

func (in *inbox) signal() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

func (in *inbox) push(ds []*Delivery) {
	if len(ds) == 0 {
		return
	}
	in.mu.Lock()
	if in.head > 0 && len(in.items)+len(ds) > cap(in.items) {
		n := copy(in.items, in.items[in.head:])
		clear(in.items[n:])
		in.items, in.head = in.items[:n], 0
	}
	in.items = append(in.items, ds...)
	in.mu.Unlock()
	in.signal()
}

// pop returns the oldest delivery, nil if there is none, and whether the inbox
// is closed.
func (in *inbox) pop() (d *Delivery, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.head == len(in.items) {
		in.items, in.head = in.items[:0], 0
		return nil, in.closed
	}
	d = in.items[in.head]
	in.items[in.head] = nil
	in.head++
	return d, in.closed
}

func (in *inbox) len() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.items) - in.head
}

// remove takes one delivery out, nil if it is not there.
func (in *inbox) remove(r *receiving, id uint32) *Delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := in.head; i < len(in.items); i++ {
		if d := in.items[i]; d.from == r && d.id == id {
			in.items = append(in.items[:i], in.items[i+1:]...)
			return d
		}
	}
	return nil
}

// purge drops the deliveries of a link that is gone.
func (in *inbox) purge(r *receiving) {
	in.mu.Lock()
	defer in.mu.Unlock()
	kept := in.items[:0]
	for _, d := range in.items[in.head:] {
		if d.from != r {
			kept = append(kept, d)
		}
	}
	clear(in.items[len(kept):])
	in.items, in.head = kept, 0
}

// worker is a dispatch loop: it calls the handler for one delivery at a time.
type worker struct {
	s *Subscription

	mu      sync.Mutex
	current *Delivery // the one its handler has, nil between two
	link    *receiving
	ctx     context.Context // of the deliveries of link, a lifetime: ends with it
	stop    context.CancelCauseFunc
	left    chan struct{} // closed and replaced whenever a handler has returned and somebody waits
}

// workerKey finds the worker in a handler's context.
type workerKey struct{}

func newWorker(s *Subscription) *worker { return &worker{s: s} }

// run calls the handler for the inbox's deliveries, oldest first.
//
// Started by attach; ends when the inbox is closed or the subscription stops;
// waited for by the subscription's wait group; alone in beginning deliveries.
func (w *worker) run() {
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in a handler: go on in another goroutine
			w.s.workers.Go(w.run)
		}
	}()
	for {
		d, ctx, more := w.next()
		switch {
		case d != nil:
			w.deliver(ctx, d)
		case more:
			w.idle()
			<-w.s.inbox.ready
		default:
			returned = true
			return
		}
	}
}

// idle sees to it that a window in which everything is held for long does not
// stay without credit.
func (w *worker) idle() {
	w.mu.Lock()
	r := w.link
	w.mu.Unlock()
	if r != nil {
		r.grant(true)
	}
}

// next makes the inbox's oldest delivery the worker's current one, and returns
// it with the context of its link's deliveries. Without one, more says whether
// another may come. Taking and beginning are one step, so that a delivery is
// always either in the inbox or some worker's current one.
func (w *worker) next() (d *Delivery, ctx context.Context, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if w.s.stopping.Load() {
			return nil, nil, false
		}
		d, closed := w.s.inbox.pop()
		if d == nil {
			return nil, nil, !closed
		}
		if isClosed(d.from.link.Done()) {
			continue
		}
		if w.link != d.from || w.ctx.Err() != nil {
			w.link = d.from
			w.ctx, w.stop = context.WithCancelCause(context.WithValue(context.Background(), workerKey{}, w))
		}
		w.current = d
		return d, w.ctx, true
	}
}

func (w *worker) deliver(ctx context.Context, d *Delivery) {
	if timeout := w.s.opts.HandlerTimeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	started := w.s.c.clock()
	w.finish(d, w.call(ctx, d, started), started)
}

// leave ends the worker's current delivery.
func (w *worker) leave() {
	w.mu.Lock()
	w.current = nil
	if w.left != nil {
		close(w.left)
		w.left = nil
	}
	w.mu.Unlock()
}

// call calls the handler. A panic is its error; after runtime.Goexit call
// finishes the delivery itself, since nothing behind it runs any more.
func (w *worker) call(ctx context.Context, d *Delivery, started time.Time) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		failure := &PanicError{Address: w.s.addr, Value: value, Stack: debug.Stack()}
		w.s.c.log.Error("handler panicked", logAddress, string(w.s.addr), logAttempt, d.Attempt(),
			logError, failure.Error(), "stack", string(failure.Stack))
		if value == nil {
			w.finish(d, failure, started)
		}
		err = failure
	}()
	err = w.s.handle(ctx, d)
	returned = true
	return err
}

// finish settles a delivery whose handler has ended, unless it is settled.
func (w *worker) finish(d *Delivery, err error, started time.Time) {
	s := w.s
	outcome, settleErr := s.conclude(d, err)
	w.leave()
	switch {
	case settleErr == nil:
		s.logOutcome(d, outcome, err)
		s.c.observe.settled(d, outcome, since(started), err)
	case errors.Is(settleErr, ErrSettled):
		if err != nil {
			s.c.log.Debug("handler's error after it had settled", logAddress, string(s.addr), logError, err)
		}
	default:
		s.lostSettlement(outcome, settleErr)
		s.c.observe.settled(d, outcome, since(started), settleErr)
	}
}

// conclude turns what the handler returned into the delivery's settlement.
func (s *Subscription) conclude(d *Delivery, err error) (Outcome, error) {
	if d.settled { // at most once: only its place in the window is left to give back
		if err := d.from.link.Settle(d.id, stateAccepted); err == nil {
			d.from.grant(false)
		}
		return OutcomeNone, ErrSettled
	}
	if d.status.Load() == statusTakenBack {
		s.giveUp(d)
		return OutcomeOf(err), &SettleError{Address: s.addr, Outcome: OutcomeOf(err), Err: errTakenBack}
	}
	if d.status.Load() == statusSettled {
		return OutcomeNone, ErrSettled
	}
	result := s.resolve(d, err)
	return OutcomeOf(result), s.settle(d, result)
}

// resolve asks OnFailure about an error that chose no outcome.
func (s *Subscription) resolve(d *Delivery, err error) (result error) {
	if err == nil || chosenOutcome(err) != nil {
		return err
	}
	if s.opts.OnFailure == nil {
		return defaultFailure(err)
	}
	defer func() {
		if v := recover(); v != nil {
			failure := &PanicError{Address: s.addr, Value: v, Stack: debug.Stack()}
			s.c.log.Error("OnFailure panicked", logAddress, string(s.addr), logError, failure.Error(), "stack", string(failure.Stack))
			result = failure
		}
	}()
	return s.opts.OnFailure(d, err)
}

// defaultFailure rejects what will never decode and retries the rest.
func defaultFailure(err error) error {
	if _, ok := errors.AsType[*DecodeError](err); ok {
		return &OutcomeError{Outcome: Rejected, Condition: amqp.ErrCondDecodeError, Err: err}
	}
	return err
}

// logOutcome writes Debug for each settlement, Warn for one that is no success.
func (s *Subscription) logOutcome(d *Delivery, outcome Outcome, err error) {
	level := slog.LevelDebug
	if outcome != Accepted && outcome != OutcomeNone {
		level = slog.LevelWarn
	}
	if !s.c.log.Enabled(context.Background(), level) {
		return
	}
	s.c.log.Log(context.Background(), level, "settled", logAddress, string(s.addr), logLink, d.from.name,
		logAttempt, d.Attempt(), logOutcome, outcome.String(), logError, err)
}

// takenBack cancels the handler of a delivery that the peer took back.
func (w *worker) takenBack(r *receiving, id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.current; d != nil && d.from == r && d.id == id {
		d.status.CompareAndSwap(statusOpen, statusTakenBack)
		w.stop(errTakenBack)
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

func (w *worker) running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		return 0
	}
	return 1
}

// settled waits until the worker has no delivery, or until ctx ends.
func (w *worker) settled(ctx context.Context) error {
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
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
