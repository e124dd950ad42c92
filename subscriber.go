package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/amqpflow/amqpflow/internal/address"
)

// Subscription is a handler bound to an address. It is safe for concurrent
// use.
type Subscription struct {
	c           *core
	addr        Address
	node        address.Address
	opts        SubscribeOptions
	codecs      codecs
	newDelivery func() *Delivery
	prepare     func(*Delivery) error // decodes a batch's deliveries; nil for the others
	handle      CallFunc              // middleware and handler; nil for a Stream
	reader      *reader               // of a Stream

	inboxes   []*inbox // one, or one a lane
	workers   []*worker
	gathering chan struct{}  // capacity 1: held by the worker that waits for a batch
	running   sync.WaitGroup // the workers' goroutines
	stopping  atomic.Bool    // no delivery begins any more
	waiting   atomic.Int32   // workers, or a reader, without anything to do
	paused    atomic.Bool    // between Pause and Resume; changed under mu
	arranging sync.Mutex     // held by arrange, so that the last one wins
	releasing sync.Mutex     // held by releaseHeld, so that what is older goes first

	holds    holds
	handover handover
	counts   stopCounts

	received   atomic.Uint64
	reattached atomic.Uint64
	outcomes   [Modified + 1]atomic.Uint64

	life    context.Context    // the subscription's lifetime: ends with Close, or with the broker's
	endLife context.CancelFunc // of life

	mu       sync.Mutex
	state    State
	err      error         // why it is Ended, or not attached
	invalid  error         // what is wrong with the registration
	answered chan struct{} // closed when the attach has an answer, or the subscription ended; replaced at a loss
	done     chan struct{} // closed when it ended
	link     *receiving    // nil unless attached
	relinked chan struct{} // closed and replaced when link changes
	closing  *stop         // Close or Shutdown of it, once called
}

// register makes a subscription; start adds it to the broker.
func (b *Broker) register(addr Address, opts SubscribeOptions, k kind) *Subscription {
	if b == nil || b.c == nil {
		panic("amqpflow: Subscribe: on a zero Broker")
	}
	o, bad := opts.withDefaults(k)
	node, err := addr.parse()
	if err != nil {
		bad = append(bad, fmt.Errorf("amqpflow: subscribe to %q: %w", addr, err))
	}
	if dead, wrong := o.DeadLetter.parse(); o.DeadLetter != "" && err == nil && wrong == nil && dead == node {
		bad = append(bad, errDeadLetterToItself)
	}
	s := &Subscription{
		c: b.c, addr: addr, node: node, opts: o, codecs: b.c.codecs, invalid: errors.Join(bad...),
		answered: make(chan struct{}), done: make(chan struct{}), relinked: make(chan struct{}), gathering: make(chan struct{}, 1),
	}
	s.life, s.endLife = context.WithCancel(b.c.life)
	if o.Codec != nil {
		s.codecs = codecs{o.Codec}
	}
	s.inboxes = []*inbox{newInbox()}
	s.holds = holds{s: s}
	if s.invalid == nil && k != stream {
		s.staff(k)
	}
	return s
}

// staff gives the subscription its workers: one, several on one inbox, or one
// for each lane.
func (s *Subscription) staff(k kind) {
	size := 1
	if k == batch {
		size = s.opts.BatchSize
	}
	for i := range s.opts.Workers {
		if i > 0 && s.opts.PartitionBy != nil {
			s.inboxes = append(s.inboxes, newInbox())
		}
		s.workers = append(s.workers, newWorker(s, s.inboxes[len(s.inboxes)-1], size))
	}
}

// start adds the subscription to its broker, and attaches it in the background
// if the broker is connected.
func (s *Subscription) start(handle CallFunc) {
	if handle != nil && s.invalid == nil && s.c.invalid == nil {
		s.handle = s.wrapped(handle)
	}
	if err := s.c.add(s); err != nil {
		s.end(err)
	}
}

func (c *core) add(s *Subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stop != nil || c.finished:
		return ErrNotConnected
	case c.connected && s.invalid != nil:
		return s.invalid
	case c.connected:
		c.wg.Go(func() { s.serve(nil) })
	}
	c.subs = append(c.subs, s)
	return nil
}

// Address returns the address that the subscription was registered with.
func (s *Subscription) Address() Address { return s.addr }

// State returns where the subscription is in its life.
func (s *Subscription) State() State {
	state, _ := s.status()
	return state
}

// Err returns why the subscription ended, nil after a clean Close or Shutdown;
// or, while it is Attaching, why it is not attached: ErrLinkLost with its
// cause, or an *AttachError. It returns nil while the subscription is attached.
func (s *Subscription) Err() error {
	_, err := s.status()
	return err
}

func (s *Subscription) status() (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.err
}

// Done returns a channel that is closed when the subscription ended.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Attached waits until the subscription's link is attached and returns nil, or
// why it is not: what was wrong with the registration, an *AttachError, why
// the subscription ended, or the error of ctx. A link that was lost is waited
// for; one that the peer refuses is an *AttachError at once, although it is
// tried again.
func (s *Subscription) Attached(ctx context.Context) error {
	for {
		s.mu.Lock()
		answered, state, err := s.answered, s.state, s.err
		known := isClosed(answered) // with the lock held, so that err is the answer
		s.mu.Unlock()
		switch {
		case !known:
		case state == Ended && err == nil:
			return ErrShutdown
		default:
			return err
		}
		select {
		case <-answered: // what the answer is may have changed since
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Subscription) receiving() *receiving {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// relinkLocked changes the link, and tells those who wait for its deliveries.
func (s *Subscription) relinkLocked(r *receiving) {
	s.link = r
	close(s.relinked)
	s.relinked = make(chan struct{})
}

// pulls reports whether a worker that waits for deliveries collects them from the
// link by itself. With lanes it does not, lest it hangs in the function that finds
// keys, nor with batches, whose time begins when the first delivery comes; and
// nobody may range over a Stream.
func (s *Subscription) pulls() bool {
	return len(s.inboxes) == 1 && s.prepare == nil && s.reader == nil
}

// await waits for news of the inbox or the link, or until giveUp is closed.
// Meanwhile the caller counts as waiting, so that a window in which everything is
// held for long does not stay without credit.
func (s *Subscription) await(in *inbox, giveUp <-chan struct{}) {
	s.mu.Lock()
	r, relinked := s.link, s.relinked
	s.mu.Unlock()
	var ready <-chan struct{}
	if r != nil && s.pulls() {
		if r.collect() {
			return
		}
		ready = r.link.Ready()
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	if r != nil {
		r.grant(true)
	}
	select {
	case <-in.ready:
	case <-ready:
		r.collect()
	case <-relinked:
	case <-giveUp:
	}
}

// work starts the workers.
func (s *Subscription) work() {
	for _, w := range s.workers {
		s.running.Go(w.run)
	}
}

// setState changes the state of a subscription that has not ended, and says
// why.
func (s *Subscription) setState(state State, cause error) {
	s.mu.Lock()
	ended := s.state == Ended
	if !ended {
		s.state, s.err = state, cause
	}
	s.mu.Unlock()
	if !ended {
		s.tellState(state, cause)
	}
}

// attach gives the subscription a session and a link on conn, for Connect.
// Nothing is received before begin. One that was closed meanwhile gets none,
// and no error.
func (s *Subscription) attach(conn *connection) error {
	s.setState(Attaching, nil)
	r, err := conn.attachReceiver(s)
	if err != nil {
		s.setState(Registered, nil)
		s.c.log.Warn("attach refused", logAddress, string(s.addr), logError, err)
		return &AttachError{Address: s.addr, Err: err}
	}
	if s.adopt(r) {
		s.c.log.Info("attached", logAddress, string(s.addr), logLink, r.name)
	}
	return nil
}

// adopt makes r the subscription's link, unless that is over.
func (s *Subscription) adopt(r *receiving) bool {
	s.mu.Lock()
	over := s.closing != nil || s.state == Ended
	state := Attached
	if s.paused.Load() {
		state = Paused
	}
	if !over {
		s.relinkLocked(r)
		s.state, s.err = state, nil
	}
	s.mu.Unlock()
	if over {
		s.c.release(r)
		return false
	}
	s.tellState(state, nil)
	return true
}

// begin starts the goroutines of a subscription that Connect has attached,
// unless it was closed meanwhile.
func (s *Subscription) begin() {
	s.mu.Lock()
	r := s.link
	if r == nil || s.closing != nil || s.state == Ended {
		s.mu.Unlock()
		return
	}
	r.begun = true
	s.work()
	s.c.wg.Go(func() { s.serve(r) })
	close(s.answered)
	s.mu.Unlock()
	r.grant(true)
}

// detached takes a subscription back to Registered, after a Connect that
// failed.
func (s *Subscription) detached() {
	s.mu.Lock()
	s.relinkLocked(nil)
	s.mu.Unlock()
	s.setState(Registered, nil)
}

// end makes the subscription Ended. The first call counts.
func (s *Subscription) end(err error) {
	s.mu.Lock()
	if s.state == Ended {
		s.mu.Unlock()
		return
	}
	s.state, s.err = Ended, err
	if !isClosed(s.answered) {
		close(s.answered)
	}
	close(s.done)
	s.mu.Unlock()
	s.endLife()
	s.closeInboxes()
	if err != nil {
		s.c.log.Error("subscription ended", logAddress, string(s.addr), logError, err)
	}
	s.c.tell(s.life, func() {
		s.c.observe.state(s, Ended, err)
		if err != nil {
			s.c.observe.error(err)
		}
	})
}

func (s *Subscription) closeInboxes() {
	for _, in := range s.inboxes {
		in.close()
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// signal leaves a token in a channel of capacity 1, unless one is there.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
