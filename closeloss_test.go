package amqpflow_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// losses are the ways to lose a link.
var losses = map[string]func(*peer, *peerLink){
	"detach": func(p *peer, l *peerLink) { p.forced(l, true) },
	"end":    func(p *peer, l *peerLink) { p.send(l.channel, &wire.End{Error: errDeleted}) },
	"close":  func(p *peer, _ *peerLink) { p.send(0, &wire.Close{Error: errDeleted}) },
	"reset":  func(p *peer, _ *peerLink) { p.hangUp() },
}

// A link that is lost while it is closed, or shut down, may have lost the last
// settlements: that is no clean end, and the caller is told. It may go while the
// credit is taken back, while a handler is waited for, or while the detach is
// under way: an answer to that has no error.
func TestSubscription_closeSaysThatItsLinkWasLostMeanwhile(t *testing.T) {
	for loss, lose := range losses {
		for _, moment := range []string{"drain", "handler", "detach"} {
			for _, all := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s at the %s, all=%v", loss, moment, all), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						release := make(chan struct{})
						p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error { <-release; return nil }, nil)
						p.deliver("orders", data("x"))
						quiet()
						l := p.link("orders", wire.RoleReceiver)
						switch moment {
						case "drain":
							p.on(wire.CodeFlow, func(frame) bool { lose(p, l); return true })
						case "detach":
							p.on(wire.CodeDetach, func(frame) bool { lose(p, l); return true })
						}
						stop := sub.Close
						if all {
							stop = b.Shutdown
						}
						if moment != "handler" {
							close(release)
							quiet()
						}
						ended := make(chan error, 1)
						go func() { ended <- stop(within(t, 5*time.Second)) }()
						if moment == "handler" {
							quiet()
							lose(p, l)
							quiet()
							require.Empty(t, ended, "its handler runs")
							close(release)
						}
						require.ErrorIs(t, <-ended, amqpflow.ErrLinkLost)
						require.NoError(t, sub.Err(), "it ended as it was told to")
						_ = b.Shutdown(within(t, time.Second))
					})
				})
			}
		}
	}
}
