package amqpflow_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A standby that refuses the password was seen to keep a broker away from its
// own URL for 30 s after that was back.
func TestBroker_failoverThatRefusesDelaysNoOtherURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down, refuse atomic.Bool
		main, standby := newPeers(t, nil), newPeers(t, nil)
		main.setup = func(_ int, p *peer) {
			if refuse.Load() {
				p.on(wire.CodeSASLInit, p.saslCode1())
			}
		}
		standby.setup = func(_ int, p *peer) { p.on(wire.CodeSASLInit, p.saslCode1()) }
		downs, reports := make(chan error, 100), make(chan error, 100)
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://u:secret@main", &amqpflow.Options{
			FailoverURLs: []string{"amqp://u:secret@standby"},
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				switch {
				case addr == "standby:5672":
					return standby.dial(ctx)
				case down.Load():
					return nil, errRefused
				default:
					return main.dial(ctx)
				}
			},
			Observer: &amqpflow.Observer{
				Connection: func(up bool, err error) {
					if !up {
						downs <- err
					}
				},
				Error: func(err error) { reports <- err },
			},
		}))
		require.NoError(t, b.Connect(t.Context()))
		down.Store(true)
		(<-main.came).hangUp()
		<-time.After(250 * ms)
		down.Store(false)
		require.ErrorIs(t, b.Ready(), errRefused)
		require.ErrorIs(t, b.Ready(), amqpflow.ErrAuthentication)
		<-time.After(51 * ms)
		require.NoError(t, b.Ready(), "the second attempt, 300 ms after the loss")
		require.NotErrorIs(t, <-downs, amqpflow.ErrAuthentication, "the loss itself")
		for _, told := range []chan error{downs, reports} {
			require.Len(t, told, 1)
			err := <-told
			require.ErrorIs(t, err, amqpflow.ErrAuthentication)
			require.NotErrorIs(t, err, errRefused, "time heals that")
		}

		refuse.Store(true)
		dials := len(standby.dialed())
		main.latest().hangUp()
		<-time.After(time.Minute)
		assert.Len(t, standby.dialed()[dials:], 2, "where both refuse, attempts are 30 s apart")
		shutdown(t, b)
	})
}

// Which of several refusals comes first decides nothing.
func TestBroker_connectRetryWaitsForTheRefusalThatWillNotHeal(t *testing.T) {
	for _, order := range [][]amqpflow.Address{{"missing", "busy"}, {"busy", "missing"}} {
		synctest.Test(t, func(t *testing.T) {
			ps := newPeers(t, func(_ int, p *peer) {
				p.on(wire.CodeAttach, func(f frame) bool {
					a := f.perf.(*wire.Attach)
					cause := &wire.Error{Condition: "amqp:internal-error"}
					if a.Source.Address == "missing" {
						cause = &wire.Error{Condition: "amqp:not-found"}
					}
					p.refuse(f.channel, a, cause)
					return true
				})
			})
			b := amqpflow.New("amqp://localhost", &amqpflow.Options{ConnectRetry: true})
			for _, addr := range order {
				b.Subscribe(addr, accepting)
			}
			require.ErrorIs(t, b.ConnectInProcess(within(t, time.Minute+time.Second), ps.dial), context.DeadlineExceeded)
			assert.Equal(t, []time.Duration{30 * time.Second, 30 * time.Second}, ps.delays())
		})
	}
}
