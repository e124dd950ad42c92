package amqpflow

import (
	"context"
	"log/slog"
	"time"
)

// nextBatch is next for a whole batch. Of the workers on one inbox one waits
// and takes at a time: no other tears its batch, or takes the inbox's news.
func (w *worker) nextBatch() (ds []*Delivery, ctx context.Context, more bool) {
	w.s.gathering <- struct{}{}
	defer func() { <-w.s.gathering }()
	w.gather()
	return w.next()
}

// gather waits until the inbox holds a whole batch, or BatchWait has passed
// since its first delivery came, or no more will come.
func (w *worker) gather() {
	s := w.s
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		n, came, closed := w.in.oldest()
		if n >= w.size || closed || s.stopping.Load() {
			return
		}
		if n == 0 {
			s.await(w.in, nil)
			continue
		}
		left := time.Until(came.Add(s.opts.BatchWait))
		if left <= 0 {
			return
		}
		timer.Reset(left)
		select {
		case <-w.in.ready:
		case <-timer.C:
		}
	}
}

// prepared decodes a batch's deliveries and settles those that cannot be; it
// returns the others.
func (w *worker) prepared(ds []*Delivery, started time.Duration) []*Delivery {
	w.ready = w.ready[:0]
	for _, d := range ds {
		if err := w.prepare(d, started); err != nil {
			w.s.finish(w.ctx, d, err, started, nil)
			continue
		}
		w.ready = append(w.ready, d)
	}
	return w.ready
}

// prepare decodes one delivery of a batch. A panic of its codec is its error;
// after runtime.Goexit it finishes the batch, since nothing behind it runs any
// more: the others of it were not begun.
func (w *worker) prepare(d *Delivery, started time.Duration) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		failure := w.panicked(d, value)
		if err = failure; value != nil {
			return
		}
		w.s.finish(w.ctx, d, failure, started, nil)
		for _, other := range w.taken {
			if other.settled {
				other.leave()
				continue
			}
			_ = w.s.settleAs(other, stateReleased, Released) // an error means that it is settled, or its link gone
		}
		w.leave()
	}()
	err = w.s.prepare(d)
	returned = true
	return err
}

// acceptAll accepts a batch under one lock, and returns the deliveries that
// need more than that. ds is overwritten.
func (w *worker) acceptAll(ds []*Delivery, started time.Duration) (rest []*Delivery) {
	s, from := w.s, ds[0].from
	ids, accepted := w.ids[:0], ds[:0]
	for _, d := range ds {
		if d.settled || d.marked.Load() != nil || !d.status.CompareAndSwap(statusOpen, statusSettled) {
			rest = append(rest, d)
			continue
		}
		ids = append(ids, d.id)
		accepted = append(accepted, d)
	}
	w.ids = ids
	failed := from.link.SettleAll(ids, stateAccepted)
	s.outcomes[Accepted].Add(uint64(len(ids) - len(failed)))
	// A large batch leaves a gap that is to be filled while the next one,
	// which is there already, is handled.
	from.grant(4*len(ids) >= s.opts.Credit)
	for _, d := range accepted {
		s.report(d, Accepted, nil, s.written(d, Accepted, failed[d.id]), since(started), slog.LevelDebug)
	}
	return rest
}
