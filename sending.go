package amqpflow

import (
	"context"
	"sync/atomic"
	"time"

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
	turn   chan struct{}   // capacity 1: held by the first of the queue
	failed int             // whoever has the turn: links in a row that were lost before they were of use
	room   <-chan struct{} // closed when the link has gone whose place the first one takes; nil if there is none

	link atomic.Pointer[sendingLink] // the latest, nil before the first; whoever has the turn replaces it

	// The link cache's lock guards these.
	users int // publishes that have it
	used  time.Time
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
		if err := s.rest(ctx, c.backoff.Delay(s.failed)); err != nil {
			return err
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

// rest waits for d, no longer than the broker lives: Shutdown waits for the
// publish.
func (s *sending) rest(ctx context.Context, d time.Duration) error {
	c := s.p.c
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	switch {
	case c.backoff.Wait(both, d) == nil:
		return nil
	case ctx.Err() != nil:
		return s.p.waited(ctx)
	default:
		return c.notConnected()
	}
}

// send puts a message on the link of the address once it is its turn. While no frame of the
// message is queued the loss of a link is no matter: the next one takes it. The
// turn is given on unless a receipt is returned.
func (s *sending) send(ctx context.Context, call *publishing, payload []byte, inFlight int, o dataplane.SendOptions) (
	plane *dataplane.Receipt, err error,
) {
	known, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	for {
		var l *sendingLink
		if l, err = s.ready(ctx, known, inFlight); err != nil {
			break
		}
		s.p.arrived(call)
		if call.receipt != nil {
			l.begin(call.receipt)
		}
		plane, err = l.link.Send(ctx, payload, o)
		if plane != nil {
			return plane, err
		}
		if call.receipt != nil {
			l.undo(call.receipt)
		}
		if ctx.Err() != nil || !l.lost() {
			break
		}
	}
	<-s.turn
	return nil, err
}

// publish sends a message once those before it are settled. The message has the
// turn until it is settled itself, also where the wait for that is given up.
func (s *sending) publish(ctx context.Context, call *publishing, payload []byte) (Outcome, error) {
	plane, err := s.send(ctx, call, payload, 0, dataplane.SendOptions{Owner: (*turn)(s)})
	if plane == nil {
		return OutcomeNone, unsent(s.addr, goError(err))
	}
	if err != nil {
		call.buf = nil
		return OutcomeNone, unsent(s.addr, err)
	}
	if err := await(ctx, s.addr, plane); err != nil {
		return OutcomeNone, err
	}
	return outcomeOf(s.addr, plane)
}

// turn is the turn of a Publish, as the data plane knows it.
type turn sending

// Resolved is called by the data plane, once, when the outcome is known, or the
// link lost. It gives the turn to the next.
func (t *turn) Resolved(plane *dataplane.Receipt) {
	s := (*sending)(t)
	if plane.Err() == nil {
		s.link.Load().moved() // the message's: only with the turn is it replaced
	}
	<-s.turn
	s.p.links.tell()
}

// pipeline queues the message of a Send or a reply, and gives the turn on.
func (s *sending) pipeline(ctx context.Context, call *publishing, payload []byte) error {
	r := call.receipt
	plane, err := s.send(ctx, call, payload, s.p.c.opts.MaxInFlight-1, dataplane.SendOptions{Owner: (*owner)(r)})
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
