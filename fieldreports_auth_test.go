package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// refusals are the ways in which a peer may refuse what SASL offers it.
var refusals = []struct {
	name string
	how  func(*peer) func(frame) bool
	auth bool // it is about the credentials, and not for the moment
}{
	{"code 1", (*peer).saslCode1, true},
	{"code 4", func(p *peer) func(frame) bool {
		return func(frame) bool { p.send(0, &wire.SASLOutcome{Code: 4}); return true }
	}, false},
	{"a socket that closes", func(p *peer) func(frame) bool { return p.hangsUp }, false},
}

func (p *peer) saslCode1() func(frame) bool {
	return func(frame) bool { p.send(0, &wire.SASLOutcome{Code: 1}); return true }
}

// Wrong credentials fail Connect, at once and once; after a running connection
// they are tried rarely, and told as what they are.
func TestFieldReport_B06_wrongCredentials(t *testing.T) {
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refuse atomic.Bool
				ps := newPeers(t, func(_ int, p *peer) {
					if refuse.Load() {
						p.on(wire.CodeSASLInit, tc.how(p))
					}
				})
				book := new(logbook)
				downs, reports := make(chan error, 100), make(chan error, 100)
				b := amqpflow.WithoutJitter(amqpflow.New("amqp://user:hunter2@localhost", &amqpflow.Options{
					Logger: book.logger(), DialContext: ps.dialTCP,
					Observer: &amqpflow.Observer{
						Connection: func(up bool, err error) {
							if !up {
								downs <- err
							}
						},
						Error: func(err error) { reports <- err },
					},
				}))
				sub := b.Subscribe("orders", accepting)
				refuse.Store(true)
				err := b.Connect(t.Context())
				var failed *amqpflow.ConnectError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, "sasl", failed.Step)
				assert.Equal(t, tc.auth, errors.Is(err, amqpflow.ErrAuthentication))
				assert.Len(t, ps.dialed(), 1, "no retry")
				<-ps.came

				refuse.Store(false)
				require.NoError(t, b.Connect(t.Context()))
				refuse.Store(true) // somebody changes the password
				(<-ps.came).hangUp()
				<-time.After(2*time.Minute + time.Second)
				delays := ps.delays()[2:]
				if tc.auth {
					assert.Equal(t, []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}, delays)
					require.Len(t, downs, 6)
					require.Len(t, reports, 5)
					<-downs
					for range 5 {
						require.ErrorIs(t, <-downs, amqpflow.ErrAuthentication)
						require.ErrorIs(t, <-reports, amqpflow.ErrAuthentication)
					}
					require.ErrorIs(t, b.Ready(), amqpflow.ErrAuthentication)
				} else {
					assert.Equal(t, growing(len(delays) + 1)[1:], delays)
					assert.Len(t, downs, 1)
					assert.Empty(t, reports)
					require.NotErrorIs(t, b.Ready(), amqpflow.ErrAuthentication)
				}
				require.ErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
				assert.Equal(t, amqpflow.Attaching, sub.State())
				refuse.Store(false)
				<-time.After(31 * time.Second)
				require.NoError(t, b.Ready())
				assert.NotContains(t, book.String()+err.Error(), "hunter2")
				shutdown(t, b)
			})
		})
	}
}

// A token that expires: the peer closes the connection, the next dial asks for
// the next one. A callback that fails, or panics, is asked again.
func TestFieldReport_B07_expiringTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []string
		ps := newPeers(t, nil)
		ps.setup = func(n int, p *peer) {
			p.on(wire.CodeSASLInit, func(f frame) bool {
				if init := f.perf.(*wire.SASLInit); string(init.InitialResponse) != fmt.Sprint("\x00user\x00token", n) {
					p.send(0, &wire.SASLOutcome{Code: 1})
					return true
				}
				time.AfterFunc(time.Second, func() {
					p.send(0, &wire.Close{Error: &wire.Error{Condition: "amqp:unauthorized-access", Description: "token expired"}})
				})
				return false
			})
		}
		book := new(logbook)
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost", &amqpflow.Options{
			Logger: book.logger(), DialContext: ps.dialTCP,
			Credentials: func(context.Context) (amqp.SASLType, error) {
				switch len(tokens) {
				case 2:
					tokens = append(tokens, "none")
					return nil, errors.New("the identity provider is away")
				case 3:
					tokens = append(tokens, "none")
					panic("nobody expects this")
				default:
					token := fmt.Sprint("token", len(ps.dialed()))
					tokens = append(tokens, token)
					return amqp.SASLTypePlain("user", token), nil
				}
			},
		}))
		handled := make(chan struct{}, 10)
		b.Subscribe("orders", func(context.Context, *amqpflow.Delivery) error { handled <- struct{}{}; return nil })
		require.NoError(t, b.Connect(t.Context()))
		for range 5 {
			p := <-ps.came
			p.awaitCode(wire.CodeFlow)
			p.deliver("orders", data("x"))
			<-handled
		}
		assert.Equal(t, []string{"token0", "token1", "none", "none", "token2", "token3", "token4"}, tokens, "one a dial, and none twice")
		book.assertLine(t, "level=WARN", "connection lost", "token expired")
		book.assertLine(t, "level=WARN", "connect failed", "identity provider")
		book.assertLine(t, "level=ERROR", "connecting panicked", "stack=")
		assert.NotRegexp(t, `token\d`, book.String())
		_ = b.Shutdown(within(t, time.Second))
	})
}

// Large tokens go out whole; a peer that takes no frame so large is an
// authentication failure that says so, and no error to repeat at once.
func TestFieldReport_B07_largeTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(t, func(_ int, p *peer) {
			p.mechanisms = []wire.Symbol{"XOAUTH2"}
			p.on(wire.CodeSASLInit, func(f frame) bool {
				if len(f.perf.(*wire.SASLInit).InitialResponse) > 8192 {
					p.hangUp()
					return true
				}
				return false
			})
		})
		token := strings.Repeat("t", 6<<10)
		book := new(logbook)
		b := amqpflow.WithoutJitter(amqpflow.New("amqp://localhost", &amqpflow.Options{
			DialContext: ps.dialTCP, Logger: book.logger(),
			Credentials: func(context.Context) (amqp.SASLType, error) {
				return amqp.SASLTypeXOAUTH2("user", token, 1<<20), nil
			},
		}))
		require.NoError(t, b.Connect(t.Context()))
		p := <-ps.came
		assert.Contains(t, string(p.awaitCode(wire.CodeSASLInit).perf.(*wire.SASLInit).InitialResponse), token)

		token = strings.Repeat("t", 9<<10)
		p.hangUp()
		<-time.After(95 * time.Second)
		assert.Equal(t, []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second}, ps.delays()[1:])
		require.ErrorIs(t, b.Ready(), amqpflow.ErrAuthentication)
		require.ErrorContains(t, b.Ready(), "octets with the credentials")
		assert.NotContains(t, book.String()+b.Ready().Error(), "ttt")
		shutdown(t, b)
	})
}
