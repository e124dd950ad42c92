package amqpflow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// sending is what is sent to one address, over one link after the other:
// publishes and Sends form one queue. Who is first has the turn until its
// message is queued on the link, and a Publish until it is settled. A link that
// is lost is replaced by who has the turn, so that the queue keeps its order
// through any loss; what the lost one has begun is uncertain and not repeated.
type sending struct {
	p      *Publisher
	addr   Address
	node   address.Address
	turn   chan struct{} // capacity 1: held by the first of the queue
	failed int           // whoever has the turn: links in a row that were lost before they were of use

	link atomic.Pointer[sendingLink] // the latest, nil before the first; whoever has the turn replaces it

	// The link cache's lock guards these.
	users   int // publishes that have it
	used    time.Time
	evicted *sendingLink // whose place the first link takes
}

// sendingLink is one link of an address.
type sendingLink struct {
	s    *sending
	conn *connection
	name string

	answered chan struct{} // closed by attach, when the three below are set
	link     *dataplane.Link
	amqp     *amqp.Sender
	err      error // why the attach failed

	health   health
	freed    chan struct{} // capacity 1; resolved sends, whoever has the turn receives
	reported chan struct{} // capacity 1; resolved sends, watch receives

	mu       sync.Mutex
	inFlight int      // Sends and replies without an outcome
	reports  []report // outcomes that somebody wants to hear of
}

// report is an outcome to tell of.
type report struct {
	*Receipt
	plane *dataplane.Receipt
}

func newSendingLink(s *sending, conn *connection) *sendingLink {
	return &sendingLink{
		s: s, conn: conn, name: rand.Text(), answered: make(chan struct{}),
		freed: make(chan struct{}, 1), reported: make(chan struct{}, 1),
	}
}

// lost reports whether the link was attached and is so no more.
func (l *sendingLink) lost() bool { return l.err == nil && isClosed(l.link.Done()) }

// live reports whether the link is attached, or about to be.
func (l *sendingLink) live() bool {
	return l != nil && (!isClosed(l.answered) || l.err == nil && !isClosed(l.link.Done()))
}

// attach makes the link, on a new session if the publisher's was lost. evicted
// is the link whose place it takes, if any.
//
// The attach does not end with anybody's context: who cannot wait for it
// leaves, and the next publish finds it done.
func (l *sendingLink) attach(node address.Node, evicted *sendingLink) {
	defer close(l.answered)
	if evicted != nil {
		_ = evicted.close(context.Background())
	}
	p := l.s.p
	sess, err := p.links.session(l.conn)
	if err != nil {
		err = fmt.Errorf("begin a session: %w", err)
	}
	if err == nil {
		err = p.links.probe(l.conn, node)
	}
	if err == nil {
		err = l.attachOn(sess, node)
	}
	if err != nil {
		l.err = &AttachError{Address: l.s.addr, Err: err}
		if l.conn.usable() {
			p.c.log.Warn("attach refused", logAddress, string(l.s.addr), logError, err)
		}
		return
	}
	l.health.begin()
	p.c.log.Info("attached", logAddress, string(l.s.addr), logLink, l.name)
	p.c.calls.Go(l.watch)
}

// attachOn attaches the link, and waits for another to go where there is no room
// for it.
func (l *sendingLink) attachOn(sess *session, node address.Node) (err error) {
	for {
		l.link, l.amqp, err = l.conn.send(sess, l.name, node)
		if !errors.Is(err, dataplane.ErrLimit) || !l.s.p.links.makeRoom(l) {
			return err
		}
	}
}

// watch tells of outcomes that no caller waits for, and of the loss of the
// link. What was outstanding on it is uncertain; what waits, and the next
// publish, attach another.
//
// Started by attach; ends with the link, when every outcome is known; waited
// for by the broker's calls.
func (l *sendingLink) watch() {
	p, lost := l.s.p, l.link.Done()
	for {
		select {
		case <-l.reported:
		case <-lost:
			lost = nil
			p.links.tell()
			if err := l.link.Err(); l.conn.usable() && !errors.Is(err, dataplane.ErrClosed) {
				p.c.log.Warn("link lost", logAddress, string(l.s.addr), logLink, l.name, logError, err)
			}
		}
		l.mu.Lock()
		reports, left := l.reports, l.inFlight
		l.reports = nil
		l.mu.Unlock()
		for _, r := range reports {
			outcome, err := outcomeOf(l.s.addr, r.plane)
			p.report(l.s.addr, outcome, r.started, err)
		}
		if lost == nil && left == 0 {
			return
		}
	}
}

// resolved counts a Send or a reply out.
func (l *sendingLink) resolved(r *Receipt, plane *dataplane.Receipt) {
	if plane.Err() == nil {
		l.moved()
	}
	heard := l.s.p.c.hears(plane)
	l.mu.Lock()
	l.inFlight--
	if heard {
		l.reports = append(l.reports, report{r, plane})
	}
	last := l.inFlight == 0
	l.mu.Unlock()
	signal(l.freed)
	if heard || last {
		signal(l.reported)
	}
	if last {
		l.s.p.links.tell()
	}
}

// moved is called for each message that has an outcome.
func (l *sendingLink) moved() {
	l.health.move()
	l.conn.health.move()
}

// take waits for the turn. known is the address's link when the call came, if
// that had failed to attach: any other failure is the answer to the call.
func (s *sending) take(ctx context.Context) (known *sendingLink, err error) {
	if known = s.link.Load(); known != nil && !isClosed(known.answered) {
		known = nil
	}
	select {
	case s.turn <- struct{}{}:
		return known, nil
	case <-ctx.Done():
		return nil, s.p.waited(ctx)
	}
}

// ready returns the address's link with at most inFlight messages under way, for
// whoever has the turn: the latest, or another where that is lost.
func (s *sending) ready(ctx context.Context, known *sendingLink, inFlight int) (*sendingLink, error) {
	for {
		l := s.link.Load()
		if l == nil {
			if err := s.renew(ctx, nil); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-l.answered:
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			return nil, s.p.waited(ctx)
		case l.err != nil && l != known && l.conn.usable():
			return nil, l.err
		case l.err != nil || l.lost():
			if err := s.renew(ctx, l); err != nil {
				return nil, err
			}
			continue
		}
		if free, err := l.free(ctx, inFlight); free || err != nil {
			return l, err
		}
	}
}

// free waits until at most inFlight messages are under way. It returns false
// where the link is lost before.
func (l *sendingLink) free(ctx context.Context, inFlight int) (bool, error) {
	for {
		l.mu.Lock()
		free := l.inFlight <= inFlight
		l.mu.Unlock()
		if free {
			return true, nil
		}
		select {
		case <-l.freed:
		case <-l.link.Done():
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// renew begins to attach another link, once there is a connection. One that was
// of no use is replaced after a delay.
func (s *sending) renew(ctx context.Context, old *sendingLink) error {
	c := s.p.c
	switch {
	case old == nil || old.err != nil:
	case old.health.good():
		s.failed = 0
	default:
		s.failed++
		if c.backoff.Wait(ctx, c.backoff.Delay(s.failed)) != nil {
			return s.p.waited(ctx)
		}
	}
	conn, err := s.p.await(ctx)
	if err != nil {
		return err
	}
	node, err := s.node.Target(conn.dialect)
	if err != nil {
		return err
	}
	return s.p.links.attach(newSendingLink(s, conn), node)
}

// send puts a message on the link of the address once it is its turn. While no frame of the
// message is queued the loss of a link is no matter: the next one takes it. It
// has the turn when it returns, unless plane is nil.
func (s *sending) send(ctx context.Context, call *publishing, payload []byte, inFlight int, o dataplane.SendOptions) (
	l *sendingLink, plane *dataplane.Receipt, err error,
) {
	known, err := s.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	for {
		if l, err = s.ready(ctx, known, inFlight); err != nil {
			break
		}
		s.p.arrived(call)
		if call.receipt != nil {
			l.begin(call.receipt)
		}
		plane, err = l.link.Send(ctx, payload, o)
		if plane != nil {
			return l, plane, err
		}
		if call.receipt != nil {
			l.undo(call.receipt)
		}
		if ctx.Err() != nil || !l.lost() {
			break
		}
	}
	<-s.turn
	return nil, nil, err
}

// publish sends a message once those before it are settled, and has the turn
// until it is settled itself.
func (s *sending) publish(ctx context.Context, call *publishing, payload []byte) (Outcome, error) {
	l, plane, err := s.send(ctx, call, payload, 0, dataplane.SendOptions{})
	if plane == nil {
		return OutcomeNone, unsent(s.addr, goError(err))
	}
	defer s.settled(plane)
	if err != nil {
		call.buf = nil
		return OutcomeNone, unsent(s.addr, err)
	}
	if err := await(ctx, s.addr, plane); err != nil {
		return OutcomeNone, err
	}
	if plane.Err() == nil {
		l.moved()
	}
	return outcomeOf(s.addr, plane)
}

// settled gives the turn to the next. Where the wait for the disposition was
// given up, the turn goes on once it has come, or the link has gone.
func (s *sending) settled(plane *dataplane.Receipt) {
	done := plane.Done()
	if isClosed(done) {
		<-s.turn
		return
	}
	s.p.c.calls.Go(func() {
		<-done
		<-s.turn
	})
}

// pipeline queues the message of a Send or a reply, and gives the turn on.
func (s *sending) pipeline(ctx context.Context, call *publishing, payload []byte) error {
	r := call.receipt
	_, plane, err := s.send(ctx, call, payload, s.p.c.opts.MaxInFlight-1, dataplane.SendOptions{Owner: (*owner)(r)})
	if plane == nil {
		return unsent(s.addr, goError(err))
	}
	<-s.turn
	r.plane = plane
	if err != nil {
		call.buf = nil
		return unsent(s.addr, err)
	}
	return nil
}

// begin counts a Send or a reply in, before its message is queued.
func (l *sendingLink) begin(r *Receipt) {
	p := l.s.p
	r.link, r.epoch = l, p.unsettled.begin()
	p.active.Add(1)
	l.mu.Lock()
	l.inFlight++
	l.mu.Unlock()
}

// undo counts it out again, where it was not queued.
func (l *sendingLink) undo(r *Receipt) {
	l.mu.Lock()
	l.inFlight--
	last := l.inFlight == 0
	l.mu.Unlock()
	if last {
		signal(l.reported) // watch may have seen the loss while this one was counted
	}
	l.s.p.unsettled.resolved(r.epoch)
	l.s.p.active.Done()
}

// close closes the link and waits for the peer's answer.
//
// Spec: 2.6.6.
func (l *sendingLink) close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	select {
	case <-l.answered:
	case <-ctx.Done():
		return fmt.Errorf("amqpflow: close the sending link of %q: %w", l.s.addr, ctx.Err())
	}
	if l.amqp == nil || isClosed(l.link.Done()) { // there is nothing to close
		return nil
	}
	if err := l.amqp.Close(ctx); err != nil {
		return fmt.Errorf("amqpflow: close the sending link of %q: %w", l.s.addr, err)
	}
	return nil
}
