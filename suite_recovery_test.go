package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

func forceDetachedLinksAreMadeAgain(t *testing.T, p suitePeer) {
	q, other := p.newQueue(t, testQueueOptions{}), p.newQueue(t, testQueueOptions{})
	handled := make(chan string, 100)
	var lost atomic.Int32
	b := brokerAt(p, &amqpflow.Options{Observer: &amqpflow.Observer{
		Connection: func(up bool, err error) {
			if !up && err != nil {
				lost.Add(1)
			}
		},
	}})
	sub := amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		handled <- m.Body
		return nil
	})
	sibling := b.Subscribe(other.addr, accepting)
	mustConnect(t, b)
	for i := range uint64(3) {
		if !p.detach(t, q) {
			t.Skip("the peer detaches no link on demand")
		}
		require.Eventually(t, func() bool { return sub.Stats().Reattached > i }, patience, time.Millisecond)
		require.NoError(t, sub.Attached(patient(t)))
		q.putBodies(t, fmt.Sprint(i))
		for await(t, patience, handled) != fmt.Sprint(i) { // one whose settlement had not left comes again
		}
		require.NoError(t, b.Publisher().Publish(patient(t), other.addr, "x"))
	}
	assert.Zero(t, sibling.Stats().Reattached)
	assert.Zero(t, lost.Load(), "on the same connection")
}

// cutter dials, and cuts what it has dialed.
type cutter struct {
	mu   sync.Mutex
	open net.Conn
	cuts int
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = nc
	return nc, err
}

// cut resets the connection, or closes it.
func (c *cutter) cut(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return
	}
	if tcp, ok := c.open.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = c.open.Close()
	c.open = nil
	c.cuts++
}

// What was confirmed is handled, whenever the connection is cut, and what was
// handled had been published.
func cutConnectionsLoseNothing(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	const cuts, senders = 10, 8
	var c cutter
	b := amqpflow.WithBackoff(brokerAt(p, &amqpflow.Options{DialContext: c.dial}), 50*time.Millisecond)
	var mu sync.Mutex
	handled := map[string]bool{}
	b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
		mu.Lock()
		handled[string(d.Data())] = true
		mu.Unlock()
		return nil
	}, &amqpflow.SubscribeOptions{Workers: 4})
	mustConnect(t, b)

	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var over atomic.Bool
	confirmed, uncertain := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	for g := range senders {
		wg.Go(func() {
			for i := 0; !over.Load(); i++ {
				body := fmt.Sprintf("%d-%d", g, i)
				var err error
				if g%2 == 0 {
					err = b.Publisher().Publish(ctx, q.addr, body)
				} else {
					var r *amqpflow.Receipt
					if r, err = b.Publisher().Send(ctx, q.addr, body); err == nil {
						err = r.Wait(ctx)
					}
				}
				mu.Lock()
				switch {
				case err == nil:
					confirmed[body] = true
				case errors.Is(err, amqpflow.ErrUncertain):
					uncertain[body] = true
				default:
					assert.ErrorIs(t, err, amqpflow.ErrNotSent)
				}
				mu.Unlock()
			}
		})
	}
	for i := range cuts {
		pause := time.NewTimer(time.Duration(50+rand.IntN(100)) * time.Millisecond)
		<-pause.C
		c.cut(i%2 == 0)
	}
	over.Store(true)
	wg.Wait()
	require.NoError(t, ctx.Err(), "no publish hangs")
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for body := range confirmed {
			if !handled[body] {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "what was confirmed is handled")
	mu.Lock()
	defer mu.Unlock()
	for body := range handled {
		assert.True(t, confirmed[body] || uncertain[body], "%s was handled, and not published", body)
	}
	t.Logf("%d cuts, %d confirmed, %d uncertain, %d handled", c.cuts, len(confirmed), len(uncertain), len(handled))
	assert.NotEmpty(t, confirmed)
	assert.NotEmpty(t, uncertain, "some were under way")
}

// A password that changes while the broker is connected shows when the
// connection is lost: as what it is, and until it is right again.
func changedPasswordIsReported(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	right := passwordOf(t, p)
	var password atomic.Pointer[string]
	password.Store(&right)
	downs := make(chan error, 1000)
	var c cutter
	b := amqpflow.WithBackoff(amqpflow.New(withoutUser(t, p), &amqpflow.Options{
		DialContext: c.dial,
		Credentials: func(context.Context) (amqp.SASLType, error) {
			return amqp.SASLTypePlain(userOf(t, p), *password.Load()), nil
		},
		Observer: &amqpflow.Observer{Connection: func(up bool, err error) {
			if !up {
				downs <- err
			}
		}},
	}), 200*time.Millisecond)
	sub := b.Subscribe(q.addr, accepting)
	mustConnect(t, b)
	wrong := "no longer " + right
	password.Store(&wrong)
	c.cut(true)
	require.NotErrorIs(t, await(t, patience, downs), amqpflow.ErrAuthentication, "the loss itself")
	for range 3 {
		err := await(t, patience, downs)
		require.ErrorIs(t, err, amqpflow.ErrAuthentication)
		assert.NotContains(t, err.Error(), right)
	}
	require.ErrorIs(t, b.Ready(), amqpflow.ErrAuthentication)
	assert.Equal(t, amqpflow.Attaching, sub.State())
	password.Store(&right)
	require.NoError(t, sub.Attached(patient(t)))
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x"))
	require.NoError(t, b.Ready())
}
