package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// ledger notes what became of messages, each of which has its number as body.
type ledger struct {
	mu        sync.Mutex
	confirmed map[string]bool
	uncertain map[string]bool
	handled   map[string]int // handlers that began
	running   int
	atOnce    int // the most handlers that ran at once
}

func newLedger() *ledger {
	return &ledger{confirmed: map[string]bool{}, uncertain: map[string]bool{}, handled: map[string]int{}}
}

func (l *ledger) handle(_ context.Context, d *amqpflow.Delivery) error {
	l.mu.Lock()
	l.handled[string(d.Data())]++
	l.running++
	l.atOnce = max(l.atOnce, l.running)
	l.mu.Unlock()
	<-time.After(ms)
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	return nil
}

// publish publishes until the answer is one that is not safe to repeat.
func (l *ledger) publish(ctx context.Context, t *testing.T, b *amqpflow.Broker, addr amqpflow.Address, body string) {
	for {
		err := b.Publisher().Publish(ctx, addr, body)
		switch {
		case err == nil:
			l.mu.Lock()
			l.confirmed[body] = true
			l.mu.Unlock()
			return
		case errors.Is(err, amqpflow.ErrUncertain):
			l.mu.Lock()
			l.uncertain[body] = true
			l.mu.Unlock()
			return
		case errors.Is(err, amqpflow.ErrNotSent), errors.Is(err, amqpflow.ErrNotConnected):
			if !assert.NoError(t, ctx.Err()) {
				return
			}
			<-time.After(10 * ms)
		default:
			assert.NoError(t, err)
			return
		}
	}
}

// check holds the answers against what was handled.
func (l *ledger) check(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Len(t, l.confirmed, n-len(l.uncertain), "each publish has one answer")
	for body := range l.confirmed {
		assert.NotZero(t, l.handled[body], "%s was confirmed and is lost", body)
	}
	assert.Equal(t, 1, l.atOnce, "one handler at a time")
}

// The connection, a session or a link goes behind each frame of a
// conversation, once and again: what was confirmed is handled, no rule of the
// protocol is broken, and the end is clean.
func TestBroker_losesNothingWhereverItIsCut(t *testing.T) {
	const n = 10
	for name, fault := range map[string]amqptest.Fault{
		"drop":    amqptest.Drop(),
		"close":   amqptest.Close(amqp.ErrCondConnectionForced, "maintenance"),
		"end":     amqptest.End(amqp.ErrCondResourceLimitExceeded, "too much"),
		"detach":  amqptest.Detach("orders", amqp.ErrCondDetachForced, "idle"),
		"suspend": amqptest.Suspend("orders", amqp.ErrCondDetachForced, "idle"),
	} {
		t.Run(name, func(t *testing.T) {
			recovered := uint64(0)
			for frames := range 70 {
				synctest.Test(t, func(t *testing.T) {
					s := amqptest.NewServer()
					b := amqpflow.New("amqp://localhost", &amqpflow.Options{ConnectRetry: true})
					l := newLedger()
					sub := b.Subscribe("orders", l.handle, &amqpflow.SubscribeOptions{Credit: 4})
					require.NoError(t, s.Fault(fault.AfterFrames(frames).Times(3)))
					ctx := within(t, 10*time.Minute)
					require.NoError(t, s.Connect(ctx, b))
					for i := range n {
						l.publish(ctx, t, b, "orders", fmt.Sprint(i))
					}
					s.Heal()
					<-time.After(2 * time.Minute)
					require.NoError(t, b.Ready(), "%s after %d frames", name, frames)
					require.NoError(t, s.Idle(ctx))
					l.check(t, n)
					recovered += sub.Stats().Reattached
					shutdown(t, b)
					require.NoError(t, s.Close(), "%s after %d frames", name, frames)
				})
			}
			assert.Greater(t, recovered, uint64(15), "there was something to recover from")
		})
	}
}

// Every byte, too: half a frame is no frame.
func TestBroker_losesNothingWhereverAFrameIsCut(t *testing.T) {
	step := 7
	if stormSize < 10_000 {
		step = 61
	}
	for octets := 0; octets < 4000; octets += step {
		synctest.Test(t, func(t *testing.T) {
			s := amqptest.NewServer()
			b := amqpflow.New("amqp://localhost", &amqpflow.Options{ConnectRetry: true})
			l := newLedger()
			b.Subscribe("orders", l.handle)
			require.NoError(t, s.Fault(amqptest.Drop().AfterBytes(octets)))
			ctx := within(t, 10*time.Minute)
			require.NoError(t, s.Connect(ctx, b))
			for i := range 10 {
				l.publish(ctx, t, b, "orders", fmt.Sprint(i))
			}
			s.Heal()
			<-time.After(time.Minute)
			require.NoError(t, s.Idle(ctx))
			l.check(t, 10)
			shutdown(t, b)
			require.NoError(t, s.Close(), "after %d bytes", octets)
		})
	}
}
