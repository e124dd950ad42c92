package amqpflow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

type settlement struct {
	body    string
	outcome amqpflow.Outcome
	took    time.Duration
	err     error
}

func settlementsObserved() (*amqpflow.Options, *gathered[settlement]) {
	all := &gathered[settlement]{}
	return &amqpflow.Options{Observer: &amqpflow.Observer{
		Settled: func(d *amqpflow.Delivery, o amqpflow.Outcome, took time.Duration, err error) {
			all.add(settlement{string(d.Data()), o, took, err})
		},
	}}, all
}

// Whoever settles, the observer hears of it once.
func TestObserver_settledByHandInAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		o, all := settlementsObserved()
		p, b, _ := serve(t, func(ctx context.Context, d *amqpflow.Delivery) error {
			<-time.After(time.Second)
			assert.NoError(t, d.Settle(ctx, bad))
			<-time.After(time.Second)
			assert.ErrorIs(t, d.Accept(ctx), amqpflow.ErrSettled)
			return nil
		}, nil, o)
		p.deliver("orders", data("x"))
		<-time.After(3 * time.Second)
		assert.Equal(t, []settlement{{"x", amqpflow.Modified, time.Second, bad}}, all.all())
		shutdown(t, b)
	})
}

func TestObserver_settledInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		o, all := settlementsObserved()
		p, b, _ := serveBatches(t, func(ctx context.Context, ms []*amqpflow.Message[string]) error {
			<-time.After(time.Second)
			assert.NoError(t, ms[0].Accept(ctx))
			ms[1].Mark(amqpflow.Release())
			<-time.After(time.Second)
			return failed
		}, &amqpflow.SubscribeOptions{BatchSize: 10, BatchWait: 500 * time.Millisecond}, o)
		for _, body := range []string{"a", "b", "c"} {
			p.deliver("orders", data(body))
		}
		<-time.After(5 * time.Second)
		got := all.all()
		require.Len(t, got, 3)
		assert.Equal(t, settlement{"a", amqpflow.Accepted, time.Second, nil}, got[0], "from the call, not from the coming")
		assert.Equal(t, settlement{"b", amqpflow.Released, 2 * time.Second, amqpflow.Release()}, got[1], "the mark is the reason")
		assert.Equal(t, settlement{"c", amqpflow.Modified, 2 * time.Second, failed}, got[2])
		shutdown(t, b)
	})
}

func TestObserver_settledByTheReaderOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, all := settlementsObserved()
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost", o)
		s := b.Stream("orders")
		p.connect(b)
		p.deliver("orders", data("x"))
		<-time.After(time.Minute)
		for d, err := range s.Deliveries(t.Context()) {
			require.NoError(t, err)
			<-time.After(time.Second)
			require.NoError(t, d.Accept(t.Context()))
			break
		}
		assert.Equal(t, []settlement{{"x", amqpflow.Accepted, time.Second, nil}}, all.all())
		shutdown(t, b)
	})
}
