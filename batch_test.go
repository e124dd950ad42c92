package amqpflow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// Two workers may both see a whole batch before one takes it. The other must
// not take the signal of the next delivery then and wait for its turn to
// gather, which has whoever waits for that signal.
func TestWorker_batchThatAnotherTookLosesNoSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := make(chan int, 1)
		s := SubscribeBatch(New("amqp://localhost"), "in", func(_ context.Context, ms []*Message[[]byte]) error {
			handled <- len(ms)
			return FailFast(errors.New("enough")) // settles nothing
		}, &SubscribeOptions{Workers: 2, BatchSize: 2})
		in, late := s.inboxes[0], s.workers[1]
		from := &receiving{s: s, link: new(dataplane.Link)}
		deliver := func(n int) {
			var ds []*Delivery
			for range n {
				d := s.newDelivery()
				d.from = from
				d.at = time.Since(processStart)
				ds = append(ds, d)
			}
			in.push(ds)
		}
		deliver(2)
		s.gathering <- struct{}{}
		s.running.Go(late.run)
		synctest.Wait() // late waits for its turn to gather
		late.mu.Lock()
		<-s.gathering
		s.gathering <- struct{}{} // late has gathered, and cannot take
		<-in.ready                // as by whoever gathered the batch
		in.take(nil, 2)
		<-s.gathering
		late.mu.Unlock()
		synctest.Wait()
		s.running.Go(s.workers[0].run)
		synctest.Wait()
		deliver(1)
		select {
		case n := <-handled:
			assert.Equal(t, 1, n)
		case <-time.After(time.Minute):
			t.Error("nobody handles the delivery")
			deliver(1)
		}
		s.closeInboxes()
		s.running.Wait()
	})
}
