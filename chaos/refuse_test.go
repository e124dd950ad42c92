package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// tries are the times at which something was tried.
type tries struct {
	mu sync.Mutex
	at []time.Time
}

func (a *tries) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
}

// gaps are the waits in between, from the n-th try on.
func (a *tries) gaps() (all []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 1; i < len(a.at); i++ {
		all = append(all, a.at[i].Sub(a.at[i-1]))
	}
	return all
}

// tapped is a connection that counts the attaches of receiving links.
type tapped struct {
	net.Conn
	out   *splitter
	links *tries
}

func (c tapped) Write(b []byte) (int, error) {
	c.out.push(b, func(f frame, _ int) bool {
		var a wire.Attach
		if f.code == wire.CodeAttach && a.Decode(f.body) == nil && a.Role == wire.RoleReceiver {
			c.links.add()
		}
		return false
	})
	return c.Conn.Write(b)
}

// TestRefuse: whatever is refused for ten minutes is tried again, after waits
// that grow up to the cap and are never regular; once it is let in, it works
// again; and a stop does not wait for the wait.
func TestRefuse(t *testing.T) {
	const queue = amqpflow.Address("orders")
	total := &result{}
	for _, test := range []struct {
		name   string
		fault  amqptest.Fault
		links  bool // links are tried, not connections
		begins bool // by a connection that is lost
	}{
		{name: "TCP", fault: amqptest.RefuseTCP().Always(), begins: true},
		{name: "open", fault: amqptest.RefuseOpen(amqp.ErrCondConnectionForced, "on purpose").Always(), begins: true},
		{name: "attach", fault: amqptest.RefuseAttach(queue, amqp.ErrCondInternalError, "on purpose").Always(), links: true},
		{name: "detach after 10 ms", fault: amqptest.Detach(queue, amqp.ErrCondInternalError, "on purpose").Delay(10 * time.Millisecond).Always(), links: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := amqptest.NewServer()
				dials, links := &tries{}, &tries{}
				handled := make(chan struct{}, 1)
				b := amqpflow.New("amqp://localhost")
				sub := b.Subscribe(queue, func(context.Context, *amqpflow.Delivery) error {
					select {
					case handled <- struct{}{}:
					default: // it may come again
					}
					return nil
				})
				require.NoError(t, b.ConnectInProcess(t.Context(), func(ctx context.Context) (net.Conn, error) {
					dials.add()
					c, err := server.Dial(ctx)
					if err != nil {
						return nil, err
					}
					return tapped{Conn: c, out: &splitter{dir: out}, links: links}, nil
				}))
				require.NoError(t, server.Fault(test.fault))
				if test.begins {
					require.NoError(t, server.Fault(amqptest.Drop()))
				} else if test.name == "attach" {
					require.NoError(t, server.Fault(amqptest.Detach(queue, amqp.ErrCondInternalError, "on purpose")))
				}
				pause(t.Context(), 10*time.Minute)
				total.faults++
				tried := dials
				if test.links {
					tried = links
					assert.Empty(t, dials.gaps(), "a link harms no connection")
				}
				growing(t, tried.gaps())
				assert.Error(t, b.Ready())
				server.Heal()
				require.NoError(t, server.Put(queue, amqp.NewMessage([]byte("x"))))
				healed := time.Now()
				<-handled
				assert.LessOrEqual(t, time.Since(healed), 31*time.Second, "the cap, and a second")
				assert.Equal(t, amqpflow.Attached, sub.State())

				require.NoError(t, server.Fault(amqptest.Together(test.fault, amqptest.Drop())))
				pause(t.Context(), 2*time.Minute) // somewhere in a long wait
				began := time.Now()
				bound, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_ = b.Shutdown(bound)
				assert.LessOrEqual(t, time.Since(began), 100*time.Millisecond, "a stop does not wait for the backoff")
				assert.NoError(t, server.Close())
			})
		})
	}
	total.runs = 4
	tell(t, total)
}

// growing expects waits of 100 ms that double up to 30 s, with full jitter:
// few, none above the cap, long ones in the end, and not all the same.
func growing(t *testing.T, gaps []time.Duration) {
	t.Helper()
	const ceiling = 30 * time.Second
	require.GreaterOrEqual(t, len(gaps), 15, "it goes on trying")
	assert.LessOrEqual(t, len(gaps), 110, "ten minutes are twenty caps, full jitter halves them")
	var sum time.Duration
	for _, g := range gaps[len(gaps)/2:] {
		sum += g
		assert.LessOrEqual(t, g, ceiling+time.Second)
	}
	mean := sum / time.Duration(len(gaps)-len(gaps)/2)
	assert.Greater(t, mean, ceiling/5, "the waits have grown")
	assert.NotEqual(t, gaps[len(gaps)-1], gaps[len(gaps)-2], "the waits have jitter")
}
