package amqpflow_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestStream_shutdownOfAnAtMostOnceStreamThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://localhost")
		b.Stream("in", &amqpflow.SubscribeOptions{Credit: 4, AtMostOnce: true})
		p.connect(b)
		p.deliver("in", data("x"))
		quiet()
		began := time.Now()
		shutdown(t, b)
		assert.Less(t, time.Since(began), time.Second)
	})
}

func TestStream_shutdownGoesOnWhenTheLastDeliveryIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		goOn := make(chan struct{})
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Observer: &amqpflow.Observer{Error: func(error) { <-goOn }}})
		st := b.Stream("in", &amqpflow.SubscribeOptions{Credit: 4})
		p.connect(b)
		p.deliver("in", data("x"))
		var held *amqpflow.Delivery
		for d := range st.Deliveries(t.Context()) {
			held = d
			break
		}
		p.mute(wire.CodeFlow) // no answer to the drain: deliveries may come after it
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _ = b.Shutdown(within(t, 10*time.Second)) })
		<-time.After(2 * time.Second) // the drain is given up
		p.deliver("in", []byte("rubbish"))
		quiet()
		require.NoError(t, held.Accept(t.Context()))
		quiet()
		close(goOn)
		wg.Wait()
		assert.Less(t, time.Since(began), 3*time.Second)
	})
}
