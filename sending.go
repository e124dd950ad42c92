package amqpflow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// sending is the sending link of one address. One that is lost is replaced by
// the next publish.
//
// Publishes and Sends to the address form one queue: who is first has the turn
// until its message is queued, and a Publish until it is settled.
type sending struct {
	p    *Publisher
	addr Address
	conn *connection
	name string
	turn chan struct{} // capacity 1: held by the first of the queue

	answered chan struct{} // closed by attach, when the three below are set
	link     *dataplane.Link
	amqp     *amqp.Sender
	err      error // why the attach failed

	// The link cache's lock guards these.
	users int // publishes that have it
	used  time.Time

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

func newSending(p *Publisher, conn *connection, addr Address) *sending {
	return &sending{
		p: p, addr: addr, conn: conn, name: rand.Text(), turn: make(chan struct{}, 1), answered: make(chan struct{}),
		freed: make(chan struct{}, 1), reported: make(chan struct{}, 1),
	}
}

// usable reports whether a publish may still go over the link, as far as is
// known.
func (s *sending) usable(conn *connection) bool {
	switch {
	case s.conn != conn:
		return false
	case !isClosed(s.answered):
		return true
	default:
		return s.err == nil && !isClosed(s.link.Done())
	}
}

// attach makes the link, on a new session if the publisher's was lost. evicted
// is the link whose place it takes, if any.
//
// The attach does not end with anybody's context: who cannot wait for it
// leaves, and the next publish finds it done.
func (s *sending) attach(node address.Node, evicted *sending) {
	defer close(s.answered)
	if evicted != nil {
		_ = evicted.close(context.Background())
	}
	sess, err := s.p.links.session(s.conn)
	if err != nil {
		err = fmt.Errorf("begin a session: %w", err)
	}
	if err == nil {
		err = s.p.links.probe(s.conn, node)
	}
	if err == nil {
		err = s.attachOn(sess, node)
	}
	if err != nil {
		s.err = &AttachError{Address: s.addr, Err: err}
		s.p.c.log.Warn("attach refused", logAddress, string(s.addr), logError, err)
		return
	}
	s.p.c.log.Info("attached", logAddress, string(s.addr), logLink, s.name)
	s.conn.calls.Go(s.watch)
}

// attachOn attaches the link, and waits for another to go where there is no room
// for it.
func (s *sending) attachOn(sess *session, node address.Node) (err error) {
	for {
		s.link, s.amqp, err = s.conn.send(sess, s.name, node)
		if !errors.Is(err, dataplane.ErrLimit) || !s.p.links.makeRoom(s) {
			return err
		}
	}
}

// watch tells of outcomes that no caller waits for, and notices the loss of
// the link. What was outstanding on it is uncertain; the next publish attaches
// anew. Recovery begins here.
//
// Started by attach; ends with the link, when every outcome is known; waited
// for by the connection's wait group.
func (s *sending) watch() {
	lost := s.link.Done()
	for {
		select {
		case <-s.reported:
		case <-lost:
			lost = nil
			if s.p.links.forget(s) {
				s.p.c.log.Warn("link lost", logAddress, string(s.addr), logLink, s.name, logError, s.link.Err())
			}
		}
		s.mu.Lock()
		reports, left := s.reports, s.inFlight
		s.reports = nil
		s.mu.Unlock()
		for _, r := range reports {
			outcome, err := outcomeOf(s.addr, r.plane)
			s.p.report(s.addr, outcome, r.started, err)
		}
		if lost == nil && left == 0 {
			return
		}
	}
}

// resolved counts a Send or a reply out.
func (s *sending) resolved(r *Receipt, plane *dataplane.Receipt) {
	heard := s.p.c.hears(plane)
	s.mu.Lock()
	s.inFlight--
	if heard {
		s.reports = append(s.reports, report{r, plane})
	}
	last := s.inFlight == 0
	s.mu.Unlock()
	signal(s.freed)
	if heard || last {
		signal(s.reported)
	}
	if last {
		s.p.links.tell()
	}
}

// take waits for the turn, for the attach, and until at most inFlight messages
// are under way. It gives the turn back where it fails.
func (s *sending) take(ctx context.Context, inFlight int) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.ready(ctx, inFlight)
	if err != nil {
		<-s.turn
	}
	return err
}

func (s *sending) ready(ctx context.Context, inFlight int) error {
	select {
	case <-s.answered:
	case <-ctx.Done():
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.err != nil:
		return s.err
	}
	for {
		s.mu.Lock()
		free := s.inFlight <= inFlight
		s.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-s.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// publish sends a message once those before it are settled, and has the turn
// until it is settled itself.
func (s *sending) publish(ctx context.Context, call *publishing, payload []byte) (Outcome, error) {
	if err := s.take(ctx, 0); err != nil {
		return OutcomeNone, unsent(s.addr, err)
	}
	plane, err := s.link.Send(ctx, payload, dataplane.SendOptions{})
	if plane == nil {
		<-s.turn
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
	s.conn.calls.Go(func() {
		<-done
		<-s.turn
	})
}

// pipeline queues the message of a Send or a reply, and gives the turn on.
func (s *sending) pipeline(ctx context.Context, call *publishing, payload []byte) error {
	if err := s.take(ctx, s.p.c.opts.MaxInFlight-1); err != nil {
		return unsent(s.addr, err)
	}
	defer func() { <-s.turn }()
	r := call.receipt
	r.link, r.epoch = s, s.p.unsettled.begin()
	s.p.active.Add(1)
	s.mu.Lock()
	s.inFlight++
	s.mu.Unlock()
	plane, err := s.link.Send(ctx, payload, dataplane.SendOptions{Owner: (*owner)(r)})
	if plane == nil {
		s.mu.Lock()
		s.inFlight--
		last := s.inFlight == 0
		s.mu.Unlock()
		if last {
			signal(s.reported) // watch may have seen the loss while this one was counted
		}
		s.p.unsettled.resolved(r.epoch)
		s.p.active.Done()
		return unsent(s.addr, goError(err))
	}
	r.plane = plane
	if err != nil {
		call.buf = nil
		return unsent(s.addr, err)
	}
	return nil
}

// close closes the link and waits for the peer's answer.
//
// Spec: 2.6.6.
func (s *sending) close(ctx context.Context) error {
	select {
	case <-s.answered:
	case <-ctx.Done():
		return fmt.Errorf("amqpflow: close the sending link of %q: %w", s.addr, ctx.Err())
	}
	if s.amqp == nil || isClosed(s.link.Done()) { // there is nothing to close
		return nil
	}
	if err := s.amqp.Close(ctx); err != nil {
		return fmt.Errorf("amqpflow: close the sending link of %q: %w", s.addr, err)
	}
	return nil
}
