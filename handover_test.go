package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// serveRabbit is serve with a peer that says it is RabbitMQ.
func serveRabbit(t *testing.T, version string, fn func(context.Context, *amqpflow.Delivery) error, bo ...*amqpflow.Options) (*peer, *amqpflow.Broker, *amqpflow.Subscription) {
	t.Helper()
	p := newPeer(t)
	p.open.Properties = wire.Map{{Key: wire.Symbol("product"), Value: "RabbitMQ"}, {Key: wire.Symbol("version"), Value: version}}
	b := amqpflow.New("amqp://localhost", bo...)
	sub := b.Subscribe("raw:orders", fn)
	p.connect(b)
	return p, b, sub
}

func TestRetryAfter_longHoldsAreRabbitMQs(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version string
		result  error
		handed  bool
	}{
		{"a minute", "4.3.6", amqpflow.RetryAfter(time.Minute, errors.New("x")), true},
		{"later versions", "5.0.0", amqpflow.RetryAfter(time.Minute, errors.New("x")), true},
		{"ten seconds", "4.3.6", amqpflow.RetryAfter(10*time.Second, errors.New("x")), false},
		{"earlier versions", "4.2.1", amqpflow.RetryAfter(20*time.Second, errors.New("x")), false},
		{"unknown versions", "x", amqpflow.RetryAfter(20*time.Second, errors.New("x")), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, sub := serveRabbit(t, tc.version, func(context.Context, *amqpflow.Delivery) error { return tc.result })
				started := time.Now()
				p.deliver("orders", data("x"))
				d := p.awaitDisposition()
				assert.Equal(t, wire.StateModified, d.State.Kind)
				assert.True(t, d.State.DeliveryFailed)
				if !tc.handed {
					assert.Empty(t, d.State.Annotations)
					assert.GreaterOrEqual(t, time.Since(started), 10*time.Second)
				} else {
					assert.Less(t, time.Since(started), gathering)
					assert.Equal(t, wire.Map{{Key: wire.Symbol("x-opt-delivery-time"), Value: started.Add(time.Minute).UTC()}}, d.State.Annotations)
					assert.Zero(t, sub.Stats().Retrying)
				}
				shutdown(t, b)
			})
		})
	}
}

func TestRetryAfter_handedOverKeepsOtherAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := &amqpflow.OutcomeError{Outcome: amqpflow.Modified, Delay: time.Hour, Annotations: amqp.Annotations{"x-why": "busy"}}
		p, b, _ := serveRabbit(t, "4.3.6", func(context.Context, *amqpflow.Delivery) error { return later })
		started := time.Now()
		p.deliver("orders", data("x"))
		annotations := p.awaitDisposition().State.Annotations
		assert.Equal(t, "busy", annotations.Get("x-why"))
		assert.Equal(t, started.Add(time.Hour).UTC(), annotations.Get("x-opt-delivery-time"))
		shutdown(t, b)
	})
}

// A retry that the broker may never have heard of comes again at once: that says
// nothing about how it holds others.
func TestRetryAfter_handedOverOnALinkThatIsLost(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprintf("settled before the loss=%v", settled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := new(logbook)
				goOn := make(chan struct{})
				p, b, sub := serveRabbit(t, "4.3.6", func(context.Context, *amqpflow.Delivery) error {
					<-goOn
					return amqpflow.RetryAfter(time.Minute, errors.New("x"))
				}, &amqpflow.Options{Logger: book.logger(), IdleTimeout: -1})
				p.deliver("orders", data("x"))
				quiet()
				lose := func() {
					l := p.link("orders", wire.RoleReceiver)
					p.send(l.channel, &wire.Detach{Handle: l.attach.Handle, Closed: true})
					quiet()
				}
				if settled {
					close(goOn)
					quiet()
					lose()
				} else {
					lose()
					close(goOn)
				}
				<-time.After(time.Second)
				require.NoError(t, sub.Attached(t.Context()))
				p.deliver("orders", retried("x"))
				quiet()
				assert.Empty(t, book.line("does not hold"))
				assert.Zero(t, sub.Stats().Retrying)
				assert.Equal(t, 1, amqpflow.HandedOver(sub))
				shutdown(t, b)
			})
		})
	}
}

// retried is a message as it comes again: the header, and what the peer adds.
func retried(body string) []byte {
	header := wire.Header{Priority: wire.DefaultPriority, DeliveryCount: 1}
	annotated, err := wire.AppendSection(header.Append(nil), wire.CodeMessageAnnotations, wire.Map{{Key: wire.Symbol("x-opt-delivery-time"), Value: time.Now()}})
	if err != nil {
		panic(err)
	}
	return wire.AppendData(annotated, []byte(body))
}

func TestRetryAfter_comingBackEarlyOnceIsHeldHereFromThenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, sub := serveRabbit(t, "4.3.6", func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(time.Minute, errors.New("x"))
		}, &amqpflow.Options{Logger: book.logger(), IdleTimeout: -1})
		first := wire.Header{Priority: wire.DefaultPriority, FirstAcquirer: true}
		p.deliver("orders", wire.AppendData(first.Append(nil), []byte("x")))
		require.NotEmpty(t, p.awaitDisposition().State.Annotations)
		p.deliver("orders", wire.AppendData(first.Append(nil), []byte("x")))
		require.NotEmpty(t, p.awaitDisposition().State.Annotations, "one that is the same, and comes for the first time, says nothing")
		assert.Empty(t, book.line("does not hold"))

		p.deliver("orders", retried("x"))
		quiet()
		book.assertLine(t, "level=WARN", "the peer does not hold retries of this address", "address=raw:orders")
		assert.Equal(t, 1, sub.Stats().Retrying)
		for range 3 {
			p.deliver("orders", retried("y"))
		}
		quiet()
		assert.Equal(t, 4, sub.Stats().Retrying)
		assert.Equal(t, 1, strings.Count(book.String(), "does not hold"))
		shutdown(t, b)
	})
}

func TestRetryAfter_comingBackInTimeStaysThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, sub := serveRabbit(t, "4.3.6", func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(time.Minute, errors.New("x"))
		}, &amqpflow.Options{Logger: book.logger(), IdleTimeout: -1})
		p.deliver("orders", data("x"))
		for range 3 {
			require.NotEmpty(t, p.awaitDisposition().State.Annotations)
			<-time.After(59 * time.Second) // its clock is a second ahead
			p.deliver("orders", retried("x"))
		}
		quiet()
		assert.Empty(t, book.line("does not hold"))
		assert.Zero(t, sub.Stats().Retrying)
		shutdown(t, b)
	})
}

// What never comes back here is forgotten: other consumers have got it.
func TestRetryAfter_remembersABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, sub := serveRabbit(t, "4.3.6", func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.RetryAfter(11*time.Second, errors.New("x"))
		}, &amqpflow.Options{Logger: book.logger(), IdleTimeout: -1})
		for i := range 3000 {
			p.deliver("orders", data(string(rune('a'+i))))
		}
		quiet()
		assert.Len(t, p.outcomes(), 3000, "all are the peer's, remembered or not")
		<-time.After(time.Minute)
		p.deliver("orders", retried("x"))
		quiet()
		assert.LessOrEqual(t, amqpflow.HandedOver(sub), 1)
		shutdown(t, b)
	})
}
