package amqpflow_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// peers plays a fresh peer for each dial.
type peers struct {
	t     testing.TB
	setup func(n int, p *peer) // n counts from 0; may be nil

	mu     sync.Mutex
	refuse error       // while it is set, every dial fails with it
	dials  []time.Time // refused ones, too
	all    []*peer
	came   chan *peer // capacity 1000
}

func newPeers(t testing.TB, setup func(n int, p *peer)) *peers {
	return &peers{t: t, setup: setup, came: make(chan *peer, 1000)}
}

func (ps *peers) dial(context.Context) (net.Conn, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dials = append(ps.dials, time.Now())
	if ps.refuse != nil {
		return nil, ps.refuse
	}
	p := newPeer(ps.t)
	if ps.setup != nil {
		ps.setup(len(ps.all), p)
	}
	ps.all = append(ps.all, p)
	ps.came <- p
	return p.client, nil
}

func (ps *peers) dialTCP(ctx context.Context, _, _ string) (net.Conn, error) { return ps.dial(ctx) }

// connect connects b and returns its first peer.
func (ps *peers) connect(b *amqpflow.Broker) *peer {
	ps.t.Helper()
	require.NoError(ps.t, b.ConnectInProcess(context.Background(), ps.dial))
	return <-ps.came
}

// refusing makes dials fail with err from now on, or go through with nil.
func (ps *peers) refusing(err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.refuse = err
}

// dialed returns when there was a dial.
func (ps *peers) dialed() []time.Time {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Clone(ps.dials)
}

// delays returns the times between the dials.
func (ps *peers) delays() (all []time.Duration) {
	dials := ps.dialed()
	for i := 1; i < len(dials); i++ {
		all = append(all, dials[i].Sub(dials[i-1]))
	}
	return all
}

// latest is the peer of the last dial that went through.
func (ps *peers) latest() *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.all[len(ps.all)-1]
}
