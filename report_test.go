package amqpflow_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// reporting is options that keep the report.
func reporting(book *logbook) (*amqpflow.Options, *gathered[amqpflow.ShutdownReport]) {
	reports := new(gathered[amqpflow.ShutdownReport])
	return &amqpflow.Options{
		Logger: book.logger(), Observer: &amqpflow.Observer{Shutdown: func(r amqpflow.ShutdownReport) { reports.add(r) }},
	}, reports
}

// Two handlers that finish, one that does not, three holds, four that are not
// begun, and two publishes without an answer.
func TestShutdownReport_countsWhatWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		o, reports := reporting(book)
		hangs := make(chan struct{})
		p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			switch string(d.Data()) {
			case "finishes":
				<-time.After(time.Second)
			case "fails":
				<-time.After(time.Second)
				return errors.New("x")
			case "hangs":
				<-hangs
			case "held":
				return amqpflow.RetryAfter(10*time.Second, errors.New("x"))
			}
			return nil
		}, &amqpflow.SubscribeOptions{Workers: 3, Credit: 20}, o)
		for _, body := range []string{"done before", "held", "held", "held", "finishes", "fails", "hangs", "w", "w", "w", "w"} {
			p.deliver("orders", data(body))
			quiet()
		}
		p.mute(wire.CodeTransfer)
		for range 2 {
			_, err := b.Publisher().Send(t.Context(), "out", "x")
			require.NoError(t, err)
		}
		quiet()
		started := time.Now()
		err := b.Shutdown(within(t, 5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		quiet()
		require.Len(t, reports.all(), 1)
		report := reports.all()[0]
		assert.LessOrEqual(t, report.After, time.Since(started))
		assert.GreaterOrEqual(t, report.After, 5*time.Second)
		report.After = 0
		assert.Equal(t, amqpflow.ShutdownReport{Completed: 2, Retried: 3, Released: 4, Abandoned: 1, Uncertain: 2, Err: err}, report)
		book.assertLine(t, "level=INFO", "msg=shutdown", "completed=2", "retried=3", "released=4", "abandoned=1", "uncertain=2", "error=")
		kinds := map[wire.StateKind]int{}
		for _, outcomes := range p.outcomes() {
			kinds[outcomes[0]]++
		}
		assert.Equal(t, map[wire.StateKind]int{wire.StateAccepted: 2, wire.StateModified: 4, wire.StateReleased: 4}, kinds, "and so it was")
		require.Same(t, err, b.Shutdown(t.Context()))
		assert.Len(t, reports.all(), 1, "once")
		close(hangs)
	})
}

func TestShutdownReport_ofAStreamAndOfAHandlerThatShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reports := reporting(new(logbook))
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", o)
		s := b.Stream("stream")
		done := make(chan error, 1)
		b.Subscribe("orders", func(ctx context.Context, _ *amqpflow.Delivery) error {
			done <- b.Shutdown(ctx)
			return nil
		})
		p.connect(b)
		r := read(t.Context(), s, func(d *amqpflow.Delivery) {
			if string(d.Data()) == "settled" {
				assert.NoError(t, d.Accept(t.Context()))
			}
		})
		for _, body := range []string{"settled", "kept", "settled"} {
			p.deliver("stream", data(body))
			<-r.got
		}
		p.deliver("orders", data("x"))
		require.ErrorIs(t, <-done, context.DeadlineExceeded, "the stream's reader keeps one")
		require.Len(t, reports.all(), 1)
		report := reports.all()[0]
		assert.Equal(t, 2, report.Abandoned)
		assert.Zero(t, report.Completed+report.Retried+report.Released+report.Uncertain)
	})
}

func TestShutdownReport_ofNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reports := reporting(new(logbook))
		p, b, _ := serve(t, accepting, nil, o)
		p.deliver("orders", data("x"))
		quiet()
		shutdown(t, b)
		require.Len(t, reports.all(), 1)
		assert.Equal(t, amqpflow.ShutdownReport{After: reports.all()[0].After}, reports.all()[0])

		never := amqpflow.New("amqp://localhost", o)
		shutdown(t, never)
		assert.Len(t, reports.all(), 1)
	})
}

// Whatever an observer does, Shutdown ends.
func TestShutdownReport_panicDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, _ := serve(t, accepting, nil, &amqpflow.Options{Observer: &amqpflow.Observer{
			Shutdown: func(amqpflow.ShutdownReport) { panic("x") },
		}})
		shutdown(t, b)
	})
}

// Under the race detector: a Close and a Shutdown stop the same subscription at
// the same moment.
func TestShutdownReport_besideAClose(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			o, reports := reporting(new(logbook))
			s := amqptest.NewServer()
			b := amqpflow.New("amqp://localhost", o)
			sub := b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error { return nil })
			require.NoError(t, s.Connect(t.Context(), b))
			var stops sync.WaitGroup
			stops.Go(func() { assert.NoError(t, sub.Close(t.Context())) })
			stops.Go(func() { assert.NoError(t, b.Shutdown(t.Context())) })
			stops.Wait()
			assert.Len(t, reports.all(), 1)
			require.NoError(t, s.Close())
		})
	}
}
