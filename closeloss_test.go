package amqpflow_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// A link that is lost while it is closed, or shut down, may have lost the last
// settlements: that is no clean end, and the caller is told.
func TestSubscription_closeSaysThatItsLinkWasLostMeanwhile(t *testing.T) {
	for name, lose := range map[string]func(*peer, *peerLink){
		"detach":                   func(p *peer, l *peerLink) { p.forced(l, true) },
		"detach that crosses ours": func(p *peer, l *peerLink) { p.forced(l, true) }, // an answer has no error
		"end":                      func(p *peer, l *peerLink) { p.send(l.channel, &wire.End{Error: errDeleted}) },
		"close":                    func(p *peer, _ *peerLink) { p.send(0, &wire.Close{Error: errDeleted}) },
		"reset":                    func(p *peer, _ *peerLink) { p.hangUp() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, all := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					p, b, sub := serve(t, accepting, nil)
					p.deliver("orders", data("x"))
					quiet()
					l := p.link("orders", wire.RoleReceiver)
					at := wire.CodeDetach
					if name == "detach" {
						at = wire.CodeFlow
					}
					p.on(at, func(frame) bool { lose(p, l); return true })
					stop := sub.Close
					if all {
						stop = b.Shutdown
					}
					require.ErrorIs(t, stop(within(t, 5*time.Second)), amqpflow.ErrLinkLost)
					require.NoError(t, sub.Err(), "it ended as it was told to")
					_ = b.Shutdown(within(t, time.Second))
				})
			}
		})
	}
}
