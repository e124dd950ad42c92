package amqpflow

import (
	"context"
	"fmt"
)

// lane is the worker where a retry stays with it, nil where it is settled:
// SubscribeOptions.OrderedRetry.
func (w *worker) lane() *worker {
	if !w.s.opts.OrderedRetry {
		return nil
	}
	return w
}

// hold makes the worker's delivery wait in its lane, and says whether it does.
func (w *worker) hold(e *held) bool {
	w.mu.Lock()
	w.again = e
	w.mu.Unlock()
	if !w.s.holds.add(e) {
		w.mu.Lock()
		w.again = nil
		w.mu.Unlock()
		return false
	}
	w.reportStuck(e)
	return true
}

// reportStuck says, once for each delivery, that what waits behind it has come
// to hold more than half of the window.
func (w *worker) reportStuck(e *held) {
	behind := w.in.len()
	if w.stuck || 2*(behind+1) <= w.s.opts.Credit {
		return
	}
	w.stuck = true
	err := fmt.Errorf("amqpflow: retry in order %q: delivery %q, attempt %d, and %d behind it hold more than half of the window of %d: %w",
		w.s.addr, e.d.MessageID(), e.d.Attempt(), behind, w.s.opts.Credit, e.err)
	w.s.c.log.Error("a lane holds more than half of the window", logAddress, string(w.s.addr), logMessage, e.d.MessageID(),
		logAttempt, e.d.Attempt(), "behind", behind, logError, e.err)
	w.s.tellError(err)
}

// reattempt waits until the delivery that waits in the lane is due, and makes
// it current again, as another attempt. Without any, its hold has ended in
// another way: the subscription was paused or stopped, or the link is gone.
func (w *worker) reattempt() (ds []*Delivery, ctx context.Context) {
	e := w.again
	var brought <-chan struct{} // which nobody else would collect
	if w.s.pulls() {
		e.d.from.collect()
		brought = e.d.from.link.Ready()
	}
	for waiting := true; waiting; {
		select {
		case <-w.resume:
			waiting = false
		case <-brought:
			e.d.from.collect()
		case <-w.in.ready:
			w.reportStuck(e)
		}
	}
	from := e.d.from
	w.mu.Lock()
	w.again = nil
	goesOn := !w.s.stopping.Load() && !isClosed(from.link.Done()) && !from.link.IsTakenBack(e.d.id) &&
		e.d.status.CompareAndSwap(statusHeld, statusSettled)
	if goesOn {
		if w.ctx.Err() != nil {
			w.beginLocked(from)
		}
		w.taken = append(w.taken[:0], e.d.again())
		w.current = w.taken
		ctx = w.ctx
	}
	w.mu.Unlock()
	if goesOn {
		return w.taken, ctx
	}
	if e.d.status.Load() == statusHeld { // else whoever ended its hold has told
		w.s.holds.tell(e, w.s.settleClaimed(e.d, e.state, Modified))
	}
	w.leave()
	return nil, nil
}

// again is the delivery as another attempt. The handler of the last one may have
// kept what it got.
func (d *Delivery) again() *Delivery {
	next := d.from.s.newDelivery()
	next.from, next.id, next.count = d.from, d.id, d.count+1
	next.payload, next.data, next.props, next.headers = d.payload, d.data, d.props, d.headers
	return next
}
