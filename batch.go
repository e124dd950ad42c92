package amqpflow

import (
	"context"
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
