package amqpflow

import "time"

// gather waits until the inbox holds a whole batch, or BatchWait has passed
// since its first delivery came, or no more will come. Of the workers on one
// inbox one gathers at a time, so that a batch is not torn.
func (w *worker) gather() {
	s := w.s
	s.gathering <- struct{}{}
	defer func() { <-s.gathering }()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		n, came, closed := w.in.oldest()
		if n >= w.size || closed || s.stopping.Load() {
			return
		}
		if n == 0 {
			w.idle()
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
