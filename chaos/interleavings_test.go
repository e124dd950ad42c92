package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// TestInterleavings: whatever is called in whatever order while whatever goes
// wrong, the ledger holds. A deadlock, or a goroutine that outlives Shutdown,
// is what synctest ends a bubble for.
func TestInterleavings(t *testing.T) {
	first, rounds := fromEnv(t, seedEnv, 1), fromEnv(t, roundsEnv, 25)
	total := &result{}
	for seed := first; seed < first+rounds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := interleave(t, uint64(seed))
				assert.Empty(t, r.breaches)
				total.add(r)
			})
		})
	}
	assert.Equal(t, rounds, total.runs)
	if rounds >= 25 {
		assert.Positive(t, total.faults)
	}
	tell(t, total)
}

// player does things in random order.
type player struct {
	t      *trial
	server *amqptest.Server
	rng    *rand.Rand
	closes sync.WaitGroup // and what else is called and not waited for
}

const virtualQueues = 2

// interleave is one run in a bubble.
func interleave(t *testing.T, seed uint64) *result {
	t.Helper()
	server := amqptest.NewServer(&amqptest.Options{MaxDeliveries: -1})
	tr := &trial{
		scenario: "interleavings", seed: seed, peer: &inProcess{server}, rng: rand.New(rand.NewPCG(seed, 1)),
		prompt: &promptness{canary: &canary{}}, subs: map[*amqpflow.Subscription]*subscriber{}, noted: map[string]int{},
		began: time.Now(),
	}
	p := &player{t: tr, server: server, rng: rand.New(rand.NewPCG(seed, 2))}
	tr.load = load{
		Messages: 60 + p.rng.IntN(100), Queues: virtualQueues, Rate: 5 + p.rng.IntN(100),
		Patience: time.Duration(1+p.rng.IntN(20)) * time.Second, Handle: p.handle,
		Subscribe: amqpflow.SubscribeOptions{Credit: 1 + p.rng.IntN(30), Workers: 1, RetryMax: time.Second},
	}.withDefaults()
	tr.load.Subscribe.Workers = min(tr.load.Subscribe.Workers, tr.load.Subscribe.Credit)
	tr.ledger = newLedger("virtual", tr.load.publishers())
	o := amqpflow.Options{Observer: tr.observer(), IdleTimeout: 20 * time.Second, MaxInFlight: 1 + p.rng.IntN(50)}
	tr.broker = amqpflow.New("amqp://localhost", &o)
	tr.subscribe()
	require.NoError(t, server.Connect(t.Context(), tr.broker))

	publishing, enough := context.WithCancel(t.Context())
	for n := range tr.load.publishers() {
		tr.publishers.Go(func() { tr.publish(publishing, n) })
	}
	for range 10 + p.rng.IntN(25) {
		pause(t.Context(), time.Duration(p.rng.Int64N(int64(700*time.Millisecond))))
		p.move()
	}
	server.Heal()
	if p.rng.IntN(2) == 0 { // else the stop comes while everything is under way
		pause(t.Context(), time.Minute)
	}
	p.shutdown()
	enough()
	p.closes.Wait()
	tr.publishers.Wait()
	return tr.verdictOf(t, server)
}

// verdictOf judges with what the server holds.
func (t *trial) verdictOf(tb testing.TB, server *amqptest.Server) *result {
	tb.Helper()
	synctest.Wait()
	o := &oracle{contents: newContents(), alive: t.alive()}
	for q := range t.load.Queues {
		require.NoError(tb, t.collectLeft(tb.Context(), o, t.queue(q)))
	}
	v := o.judge(t.ledger)
	t.phantoms(v)
	if n := server.Close(); n != nil {
		v.breach("protocol: %v", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return &result{
		runs: 1, faults: t.faults.Load(), verdict: *v,
		breaches: append(append(v.breaches, t.bad...), t.prompt.breaches()...),
	}
}

// handle takes its time, and ends in any way.
func (p *player) handle(ctx context.Context, d *amqpflow.Delivery, c call) error {
	n := (c.seq*7919 + c.publisher*104729 + c.attempt*31 + int(p.t.seed)*13) % 100
	pause(ctx, time.Duration(n)*3*time.Millisecond)
	switch {
	case n < 4:
		return amqpflow.Retry(errOnPurpose)
	case n < 8:
		return amqpflow.Release()
	case n < 12:
		return errOnPurpose
	case n < 14:
		return amqpflow.Reject(errOnPurpose)
	case n < 25: // settled by hand, of which the observer hears nothing where it fails
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(n)*time.Millisecond)
		defer cancel()
		if err := d.Accept(bound); errors.Is(err, amqpflow.ErrLinkLost) {
			p.t.settled(d, amqpflow.Accepted, 0, err)
		}
	case n < 27:
		panic(errOnPurpose)
	}
	return nil
}

// move is one random thing.
func (p *player) move() {
	s, within := p.someone(), p.within()
	switch p.rng.IntN(12) {
	case 0, 1:
		p.subscribe()
	case 2:
		p.closes.Go(func() { p.close(s, within) })
	case 3:
		p.closes.Go(func() { p.pauseResume(s, within) })
	default:
		p.fault(s.sub.Address())
	}
}

func (p *player) someone() *subscriber {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	n := p.rng.IntN(len(p.t.all))
	return p.t.all[n]
}

func (p *player) subscribe() {
	if len(p.t.all) < 8 {
		p.t.subscribeTo(p.rng.IntN(virtualQueues))
	}
}

func (p *player) within() time.Duration { return time.Duration(p.rng.Int64N(int64(3 * time.Second))) }

func bounded(within time.Duration) (context.Context, context.CancelFunc, time.Time) {
	deadline := time.Now().Add(within)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	return ctx, cancel, deadline
}

func (p *player) close(s *subscriber, within time.Duration) {
	ctx, cancel, deadline := bounded(within)
	defer cancel()
	err := s.sub.Close(ctx)
	p.t.prompt.returned("Close", deadline)
	if err != nil {
		p.t.uncleanly(s)
	}
}

func (p *player) pauseResume(s *subscriber, within time.Duration) {
	ctx, cancel, deadline := bounded(within)
	defer cancel()
	_ = s.sub.Pause(ctx)
	p.t.prompt.returned("Pause", deadline)
	pause(context.Background(), time.Second)
	_ = s.sub.Resume()
}

func (p *player) shutdown() {
	ctx, cancel, deadline := bounded(2 * p.within())
	defer cancel()
	err := p.t.broker.Shutdown(ctx)
	p.t.prompt.returned("Shutdown", deadline)
	p.t.clean(err)
}

// fault sets one of them going, soon or at some byte.
func (p *player) fault(queue amqpflow.Address) {
	const cond, text = amqp.ErrCondInternalError, "on purpose"
	some := []amqptest.Fault{
		amqptest.Drop(),
		amqptest.Drop().AfterBytes(1 + p.rng.IntN(3000)),
		amqptest.Detach(queue, cond, text),
		amqptest.Suspend(queue, cond, text),
		amqptest.End(cond, text),
		amqptest.Close(amqp.ErrCondConnectionForced, text),
		amqptest.Sequence(amqptest.Drop(), amqptest.RefuseTCP().Times(1+p.rng.IntN(3))),
		amqptest.Sequence(amqptest.Drop(), amqptest.RefuseOpen(cond, text)),
		amqptest.Sequence(amqptest.Drop(), amqptest.RefuseBegin(cond, text)),
		amqptest.Sequence(amqptest.Detach(queue, cond, text), amqptest.RefuseAttach(queue, cond, text).Times(1+p.rng.IntN(3))),
		amqptest.Answer(queue, amqpflow.Rejected, &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded}).Times(3),
		amqptest.Answer(queue, amqpflow.Released, nil),
		amqptest.WithholdCredit(queue).For(2 * time.Second),
		amqptest.WithholdWindow().For(2 * time.Second),
		amqptest.Mute().For(time.Second),
		amqptest.IgnoreDetach(queue),
		amqptest.IgnoreEnd(),
	}
	if err := p.server.Fault(some[p.rng.IntN(len(some))]); err != nil {
		p.t.breach("fault: %v", err)
	}
	p.t.fault()
}
