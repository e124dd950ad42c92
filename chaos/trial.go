package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow"
)

// trial is one run: a load on one broker, under the faults of one scenario.
type trial struct {
	scenario string
	seed     uint64
	rng      *rand.Rand // the faults' alone
	peer     peer
	load     load
	relay    *relay
	ledger   *ledger
	broker   *amqpflow.Broker
	prompt   *promptness
	recovery recovery

	faults atomic.Int64 // injected
	begun  atomic.Int64 // publishes
	links  atomic.Uint32
	ups    atomic.Int64 // times the connection came up
	downs  atomic.Int64 // and was lost
	hold   atomic.Int64 // outages under way, during which nothing need move

	publishers, others sync.WaitGroup

	mu    sync.Mutex
	subs  map[*amqpflow.Subscription]*subscriber
	all   []*subscriber // the same, in order
	noted map[string]int
	bad   []string

	began time.Time
}

// result is a row of the table.
type result struct {
	scenario, peer     string
	seed               uint64
	runs               int
	verdict            verdict
	faults, recoveries int64
	worst              time.Duration // the slowest recovery
	heap               int64
	unsettled          int
	took               time.Duration
	breaches           []string
}

const (
	answersIn   = 10 * time.Second
	setupWithin = 30 * time.Second
)

func (t *trial) queue(n int) string { return fmt.Sprintf("%s%s-%d", t.load.Prefix, t.ledger.run, n) }

// breach notes that an invariant does not hold.
func (t *trial) breach(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.bad) < maxExamples {
		t.bad = append(t.bad, fmt.Sprintf(format, args...))
	}
}

// fault counts a fault that was injected.
func (t *trial) fault() { t.faults.Add(1) }

// newTrial makes the queues and connects through a relay; through is the
// host:port of what stands between relay and broker, "" for the broker's own.
func newTrial(ctx context.Context, scenario string, seed uint64, p peer, l load, through string) (*trial, error) {
	t := &trial{
		scenario: scenario, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), peer: p, load: l.withDefaults(),
		subs: map[*amqpflow.Subscription]*subscriber{}, noted: map[string]int{}, began: time.Now(),
	}
	t.recovery.fromAttach = l.FromAttach
	run := fmt.Sprintf("chaos-%s-%d-%x", scenario, seed, time.Now().UnixNano()&0xffffff)
	t.ledger = newLedger(run, t.load.publishers())
	setup, cancel := context.WithTimeout(ctx, setupWithin)
	defer cancel()
	for q := range t.load.Queues {
		if err := p.create(setup, t.queue(q)); err != nil {
			return nil, fmt.Errorf("create queue: %w", err)
		}
	}
	if through == "" {
		var err error
		if through, err = hostOf(p.url()); err != nil {
			return nil, err
		}
	}
	var err error
	t.relay, err = newRelay(through)
	return t, err
}

// connect makes the broker and its subscriptions and connects.
func (t *trial) connect(ctx context.Context) error {
	o := t.load.Options
	o.Observer = t.observer()
	o.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		t.recovery.dial(time.Now())
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	t.broker = amqpflow.New(t.relay.through(t.peer.url(), o.Credentials == nil), &o)
	t.subscribe()
	setup, cancel := context.WithTimeout(ctx, setupWithin)
	defer cancel()
	if err := t.broker.Connect(setup); err != nil {
		return err
	}
	t.recovery.forget()
	return nil
}

// run connects, publishes and consumes while faults happen, waits until
// everything has arrived, shuts down, and judges. faults may be nil.
func (t *trial) run(ctx context.Context, c *canary, faults func(context.Context, *trial) error) *result {
	t.prompt = &promptness{canary: c}
	left := newResidue()
	heap := newHeapWatch(t.keeps)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { heap.watch(watching) })
	watchers.Go(func() { t.watchdog(watching, cancel) })
	if err := t.connect(ctx); err != nil {
		t.breach("connect: %v", err)
	} else {
		enough := t.work(ctx, faults)
		t.shutdown()
		enough()
		t.answered()
	}
	stopWatching()
	watchers.Wait()
	unsettled := t.relay.unsettled()
	t.relay.close()
	return t.judge(ctx, left, heap, unsettled)
}

// work ends when the load is done and has arrived, or, where the stop comes
// midway, when most of it is published.
func (t *trial) work(ctx context.Context, faults func(context.Context, *trial) error) (stop func()) {
	publishing, enough := context.WithCancel(ctx)
	published := make(chan struct{})
	for p := range t.load.publishers() {
		t.publishers.Go(func() { t.publish(publishing, p) })
	}
	t.others.Go(func() { t.publishers.Wait(); close(published) })
	injecting, calm := context.WithCancel(ctx)
	defer calm()
	var injector sync.WaitGroup
	injector.Go(func() {
		if faults == nil {
			return
		}
		if err := faults(injecting, t); err != nil && injecting.Err() == nil {
			t.breach("faults: %v", err)
		}
		if t.load.Messages == 0 {
			enough()
		}
	})
	t.awaitPublished(ctx, published)
	if t.load.Messages > 0 {
		calm()
	}
	injector.Wait()
	if !t.load.Midway {
		t.arrived(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		t.breach("%v: confirmed and not finished: %d", cause, t.ledger.outstanding())
	}
	return enough
}

func (t *trial) awaitPublished(ctx context.Context, published <-chan struct{}) {
	if !t.load.Midway {
		select {
		case <-published:
		case <-ctx.Done():
		}
		return
	}
	for t.ledger.published() < t.load.Messages*3/4 && pause(ctx, time.Millisecond) {
		continue
	}
}

// arrived waits until every confirmed message was finished by a handler.
func (t *trial) arrived(ctx context.Context) {
	for t.outstanding() > 0 && pause(ctx, 5*time.Millisecond) {
		continue
	}
}

// shutdown holds the stop against its context, and looks for what it leaves
// behind.
func (t *trial) shutdown() {
	deadline := time.Now().Add(t.load.StopWithin)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	err := t.broker.Shutdown(ctx)
	t.prompt.returned("Shutdown", deadline)
	if err != nil {
		t.note("shutdown", err)
	}
	t.clean(err)
	if t.load.Release != nil {
		t.load.Release()
	}
	for range 10 {
		if len(strays()) == 0 {
			return
		}
		pause(context.Background(), 20*time.Millisecond)
	}
	if all := strays(); len(all) > 0 {
		t.breach("%d goroutines of the library outlive Shutdown: %s", len(all), clip(all[0], 1500))
	}
}

// answered waits for the publishers, which all have their answers after
// Shutdown.
func (t *trial) answered() {
	ended := make(chan struct{})
	t.others.Go(func() { t.publishers.Wait(); close(ended) })
	ctx, cancel := context.WithTimeout(context.Background(), answersIn)
	defer cancel()
	select {
	case <-ended:
		t.others.Wait()
	case <-ctx.Done():
		t.breach("publishes have no answer %v after Shutdown", answersIn)
	}
}

// clean remembers whether the last links ended cleanly.
func (t *trial) clean(err error) {
	if err != nil {
		t.uncleanly(t.all...)
	}
}

func (t *trial) uncleanly(subs ...*subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range subs {
		s.unclean = true
	}
}

// keeps is what the battery and the in-process broker hold by themselves.
func (t *trial) keeps() int64 {
	const settlement = 90 // amqptest remembers how each delivery was settled
	n := t.ledger.bytes()
	if _, ok := t.peer.(*inProcess); ok {
		n += settlement * t.ledger.attempts.Load()
		n += 1200 * max(int64(t.ledger.published())-t.ledger.settledUp.Load(), 0)
	}
	return n
}
