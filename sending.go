package amqpflow

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

// sending is the sending link of one address. One that is lost is replaced by
// the next publish.
type sending struct {
	p        *Publisher
	addr     Address
	conn     *connection
	turn     chan struct{} // capacity 1: held by the publish whose message is not settled
	answered chan struct{} // closed by attach, when the three below are set
	link     *dataplane.Link
	amqp     *amqp.Sender
	err      error // why the attach failed
}

// link returns the address's link; the first call attaches it. The attach does
// not end with anybody's context: who cannot wait for it leaves, and the next
// publish finds it done.
func (p *Publisher) link(conn *connection, addr Address, node address.Node) *sending {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.links[addr]; s != nil && s.usable(conn) {
		return s
	}
	s := &sending{p: p, addr: addr, conn: conn, turn: make(chan struct{}, 1), answered: make(chan struct{})}
	p.links[addr] = s
	conn.calls.Go(func() { s.attach(node) })
	return s
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

// attach makes the link, on a new session if the publisher's was lost.
func (s *sending) attach(node address.Node) {
	defer close(s.answered)
	sess, err := s.p.session(s.conn)
	if err == nil {
		s.link, s.amqp, err = s.conn.send(sess, node.Address, node.Capability)
	}
	if err != nil {
		s.err = &AttachError{Address: s.addr, Err: err}
		s.p.c.log.Warn("attach refused", logAddress, string(s.addr), logError, err)
		return
	}
	s.p.c.log.Info("attached", logAddress, string(s.addr), logLink, "sender")
	s.conn.calls.Go(s.watch)
}

// watch notices the loss of the link. What was outstanding on it is uncertain;
// the next publish attaches anew.
//
// Started by attach; ends with the link; waited for by the connection's wait
// group.
func (s *sending) watch() {
	<-s.link.Done()
	p := s.p
	p.mu.Lock()
	closed := p.closed
	if p.links[s.addr] == s {
		delete(p.links, s.addr)
	}
	p.mu.Unlock()
	if !closed {
		p.c.log.Warn("link lost", logAddress, string(s.addr), logLink, "sender", logError, s.link.Err())
	}
}

// session returns the session of the sending links. Attaches of several
// addresses may race for a new one, so the connection begins it under its own
// turn.
func (p *Publisher) session(conn *connection) (*session, error) {
	p.mu.Lock()
	sess := p.sess
	p.mu.Unlock()
	if sess == nil {
		sess = conn.pub
	}
	if !isClosed(sess.plane.Done()) {
		return sess, nil
	}
	p.c.log.Warn("session lost", logError, sess.plane.Err())
	fresh, err := conn.begin()
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sess != nil && p.sess != sess { // another attach was faster
		conn.discard(fresh)
		return p.sess, nil
	}
	p.sess = fresh
	return fresh, nil
}

// send queues a message once those that came before it are settled. With a
// receipt the caller has the link's turn until it calls settled; with an error
// beside it the message is under way, and the data plane keeps payload.
func (s *sending) send(ctx context.Context, payload []byte) (*dataplane.Receipt, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	receipt, err := s.transfer(ctx, payload)
	if receipt == nil {
		<-s.turn
	}
	return receipt, err
}

func (s *sending) transfer(ctx context.Context, payload []byte) (*dataplane.Receipt, error) {
	select {
	case <-s.answered:
	case <-ctx.Done():
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.err != nil:
		return nil, s.err
	}
	receipt, err := s.link.Send(ctx, payload, dataplane.SendOptions{})
	return receipt, goError(err)
}

// settled gives the turn to the next publish. Where the wait for the
// disposition was given up, the turn goes on once it has come, or the link has
// gone.
func (s *sending) settled(receipt *dataplane.Receipt) {
	if isClosed(receipt.Done()) {
		<-s.turn
		return
	}
	s.conn.calls.Go(func() {
		<-receipt.Done()
		<-s.turn
	})
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
