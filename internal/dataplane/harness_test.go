package dataplane

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// rig is a plane and go-amqp over it on one side of a pipe, a scripted peer on the
// other.
type rig struct {
	t  testing.TB
	c  *Conn
	ac *amqp.Conn
	p  *peer
}

type rigOptions struct {
	Options
	peer peerOptions
	orig origins
	amqp amqp.ConnOptions
}

// newRig connects both. At the end of the test the connection is closed, and reader
// and writer are waited for.
func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	a, b := net.Pipe()
	r := &rig{t: t, c: newConn(a, o.Options), p: newPeer(t, b, o.peer)}
	r.c.orig = o.orig
	r.c.start()
	ac, err := amqp.NewConn(context.Background(), r.c, &o.amqp)
	require.NoError(t, err)
	r.ac = ac
	t.Cleanup(r.stop)
	return r
}

// stop ends everything; it may be called early.
func (r *rig) stop() {
	_ = r.c.Close()
	_ = r.ac.Close()
	r.c.Wait()
	r.p.hang()
	r.p.wg.Wait()
}

// session begins a session.
func (r *rig) session() (*Session, *amqp.Session) {
	r.t.Helper()
	s, err := r.c.ExpectSession()
	require.NoError(r.t, err)
	as, err := r.ac.NewSession(context.Background(), nil)
	require.NoError(r.t, err)
	return s, as
}

// sender attaches a link to send on.
func (r *rig) sender(s *Session, as *amqp.Session, name string) (*Link, *amqp.Sender, *peerLink) {
	r.t.Helper()
	l, err := s.Expect(wire.RoleSender, name, LinkOptions{})
	require.NoError(r.t, err)
	snd, err := as.NewSender(context.Background(), "q", &amqp.SenderOptions{Name: name})
	require.NoError(r.t, err)
	return l, snd, r.p.session(s.channel).link(name)
}

// receiver attaches a link to receive on.
func (r *rig) receiver(s *Session, as *amqp.Session, name string, o LinkOptions) (*Link, *amqp.Receiver, *peerLink) {
	r.t.Helper()
	l, err := s.Expect(wire.RoleReceiver, name, o)
	require.NoError(r.t, err)
	rcv, err := as.NewReceiver(context.Background(), "q", &amqp.ReceiverOptions{Name: name, Credit: -1})
	require.NoError(r.t, err)
	return l, rcv, r.p.session(s.channel).link(name)
}

// take waits for n deliveries.
func take(t testing.TB, l *Link, n int) []Delivery {
	t.Helper()
	out := make([]Delivery, n)
	for got := 0; got < n; {
		k := l.Deliveries(out[got:])
		if got += k; k > 0 {
			continue
		}
		select {
		case <-l.Ready():
		case <-l.Done():
			require.Fail(t, "link lost", "after %d of %d deliveries: %v", got, n, l.Err())
		}
	}
	return out
}

// outcome waits for a receipt.
func outcome(t testing.TB, r *Receipt) wire.State {
	t.Helper()
	<-r.Done()
	require.NoError(t, r.Err())
	return r.Outcome()
}

// pass lets time pass, in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

var accepted = &wire.State{Kind: wire.StateAccepted}
