package amqpflow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

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
	answers  []answer // outcomes that somebody wants to hear of
}

// answer is an outcome to tell of.
type answer struct {
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

// attach makes the link, on a new session if the publisher's was lost.
//
// The attach does not end with anybody's context: who cannot wait for it
// leaves, and the next publish finds it done.
func (l *sendingLink) attach(node address.Node) {
	defer close(l.answered)
	if l.s.room != nil {
		<-l.s.room
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
		l.link, l.amqp, err = l.conn.attachSender(sess, l.name, node)
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
		answers, left := l.answers, l.inFlight
		l.answers = nil
		l.mu.Unlock()
		l.tell(answers)
		if lost == nil && left == 0 {
			return
		}
	}
}

// tell tells of outcomes.
func (l *sendingLink) tell(answers []answer) {
	p := l.s.p
	for _, r := range answers {
		outcome, err := outcomeOf(l.s.addr, r.plane)
		p.note(l.s.addr, outcome, err)
	}
	if len(answers) == 0 || p.c.opts.Observer.Published == nil {
		return
	}
	p.c.tell(p.c.life, func() {
		for _, r := range answers {
			outcome, err := outcomeOf(l.s.addr, r.plane)
			p.c.observe.published(l.s.addr, outcome, since(r.started), err)
		}
	})
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
		l.answers = append(l.answers, answer{r, plane})
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
