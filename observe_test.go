package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestObserver_isToldWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		note := func(format string, args ...any) {
			mu.Lock()
			events = append(events, fmt.Sprintf(format, args...))
			mu.Unlock()
		}
		result := errors.New("x")
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			<-time.After(3 * time.Second)
			if string(d.Data()) == "bad" {
				return result
			}
			return nil
		}, nil, &amqpflow.Options{Observer: &amqpflow.Observer{
			Connection: func(up bool, err error) { note("connection %v %v", up, err) },
			State: func(s *amqpflow.Subscription, state amqpflow.State, err error) {
				note("state %s %s %v", s.Address(), state, err)
			},
			Settled: func(d *amqpflow.Delivery, o amqpflow.Outcome, took time.Duration, err error) {
				note("settled %s %s %v %v", d.Data(), o, took, err)
			},
			Published: func(addr amqpflow.Address, o amqpflow.Outcome, took time.Duration, err error) {
				note("published %s %s %v %v", addr, o, took, err)
			},
			Error: func(err error) { note("error %v", err) },
		}})
		p.deliver("orders", data("good"))
		p.deliver("orders", data("bad"))
		<-time.After(7 * time.Second)
		p.on(wire.CodeTransfer, func(f frame) bool {
			time.AfterFunc(2*time.Second, func() { p.answer(f) })
			return true
		})
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		shutdown(t, b)
		assert.Equal(t, []string{
			"state orders attaching <nil>",
			"state orders attached <nil>",
			"connection true <nil>",
			"settled good accepted 3s <nil>",
			"settled bad modified 3s x",
			"published out accepted 2s <nil>",
			"state orders draining <nil>",
			"connection false <nil>",
			"state orders ended <nil>",
		}, events)
	})
}

// An Observer that panics, whatever it is told, is logged and changes nothing.
func TestObserver_panicDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, sub := serve(t, func(_ context.Context, d *amqpflow.Delivery) error { return nil }, nil, &amqpflow.Options{
			Logger: book.logger(),
			Observer: &amqpflow.Observer{
				Connection: func(bool, error) { panic("connection") },
				State:      func(*amqpflow.Subscription, amqpflow.State, error) { panic("state") },
				Settled:    func(*amqpflow.Delivery, amqpflow.Outcome, time.Duration, error) { panic("settled") },
				Published:  func(amqpflow.Address, amqpflow.Outcome, time.Duration, error) { panic("published") },
				Error:      func(error) { panic("error") },
			},
		})
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		p.deliver("orders", []byte("noise"))
		assert.Equal(t, wire.StateRejected, p.awaitDisposition().State.Kind)
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "x"))
		assert.Equal(t, amqpflow.Attached, sub.State())
		shutdown(t, b)
		for _, field := range []string{"Connection", "State", "Settled", "Published", "Error"} {
			book.assertLine(t, "level=ERROR", "observer panicked", "field=Observer."+field, "stack=")
		}
	})
}

// The levels are what whoever is on call filters by.
func TestBroker_logsOnlyWhatItsPageSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p := newPeer(t)
		b := amqpflow.New("amqp://user:hunter2@localhost", &amqpflow.Options{Logger: book.logger()})
		b.Subscribe("orders", accepting)
		p.connect(b)
		for range 3 {
			p.deliver("orders", data("a body that is secret"))
			p.awaitDisposition()
		}
		require.NoError(t, b.Publisher().Publish(t.Context(), "out", "a body that is secret"))
		shutdown(t, b)
		text := book.String()
		assert.NotContains(t, text, "level=WARN", "nothing went wrong")
		assert.NotContains(t, text, "level=ERROR")
		assert.NotContains(t, text, "hunter2")
		assert.NotContains(t, text, "secret")
		book.assertLine(t, "level=INFO", "connected", "peer=")
		book.assertLine(t, "level=INFO", "attached", "address=orders", "link=")
		book.assertLine(t, "level=INFO", "attached", "address=out")
		book.assertLine(t, "level=INFO", "shutting down", "held=0", "running=0")
		book.assertLine(t, "level=INFO", "shutdown", "completed=0", "retried=0", "released=0", "abandoned=0", "uncertain=0")
		book.assertLine(t, "level=DEBUG", "settled", "address=orders", "outcome=accepted", "attempt=1")
		book.assertLine(t, "level=DEBUG", "published", "address=out", "outcome=accepted")
		assert.Equal(t, 5, strings.Count(text, "level=INFO"))
		assert.NotContains(t, text, "<nil>", "what is not there has no attribute")
		assert.Equal(t, 4, strings.Count(text, "level=DEBUG"))
	})
}

// No %v, %+v or %#v of anything that a service may print shows the password.
func TestBroker_printsNoPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		b := amqpflow.New("amqp://user:hunter2@localhost", &amqpflow.Options{DialContext: p.dialTCP})
		sub := b.Subscribe("orders", accepting)
		require.NoError(t, b.Connect(t.Context()))
		quiet() // fmt takes no locks
		for _, v := range []any{b, *b, b.Publisher(), sub, b.Ready(), sub.Stats()} {
			for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
				assert.NotContains(t, fmt.Sprintf(format, v), "hunter2", "%s of %T", format, v)
			}
		}
		shutdown(t, b)
	})
}
