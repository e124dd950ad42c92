package amqpflow

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// go-amqp makes and ends sessions and links; the data plane carries what goes
// over them. No context that can end reaches go-amqp: an ended one would leave
// a BEGIN half done or a link name taken. Whoever cannot wait gives up by
// itself, or aborts the connection, which frees every call.

// session is one session, in go-amqp and in the data plane.
type session struct {
	conn  *connection
	plane *dataplane.Session
	amqp  *amqp.Session
}

// begin begins a session, one at a time on a connection.
//
// Spec: 2.5.1.
func (cn *connection) begin() (*session, error) {
	select {
	case cn.opening <- struct{}{}:
		defer func() { <-cn.opening }()
	case <-cn.plane.Done():
		return nil, cn.plane.Err()
	}
	expected, err := cn.plane.ExpectSession()
	if err != nil {
		return nil, err
	}
	begun, err := cn.amqp.NewSession(context.Background(), nil)
	if err != nil {
		expected.Forget()
		if lost := expected.Err(); lost != nil {
			err = lost
		}
		return nil, cn.cause(err)
	}
	return &session{conn: cn, plane: expected, amqp: begun}, nil
}

// end ends the session and waits for the peer's answer.
//
// Spec: 2.5.6.
func (s *session) end(ctx context.Context) error {
	if isClosed(s.plane.Done()) {
		return nil
	}
	var nudging sync.WaitGroup
	ended := make(chan struct{})
	nudging.Go(func() { s.conn.nudge(ended) })
	defer nudging.Wait()
	defer close(ended)
	if err := s.amqp.Close(ctx); err != nil {
		return fmt.Errorf("amqpflow: end session: %w", err)
	}
	return nil
}

// nudgeAfter is how long an END is left alone.
const nudgeAfter = 5 * time.Millisecond

// nudge sends empty frames, ever more rarely, until ended is closed. Artemis
// writes the answer to a connection's second END only when something else
// comes in, or when it next looks after its connections, which is every 2 s.
//
// Started by end; ends with it; waited for by it.
//
// Spec: 2.3.1 (a frame without a body has no other meaning than traffic).
func (cn *connection) nudge(ended <-chan struct{}) {
	for wait := nudgeAfter; ; wait *= 2 {
		select {
		case <-ended:
			return
		case <-time.After(wait):
		}
		if _, err := cn.plane.Write(emptyFrame[:]); err != nil {
			return // the connection is gone, and the session with it
		}
	}
}

var emptyFrame = [wire.FrameHeaderSize]byte{3: wire.FrameHeaderSize, 4: 2}

// payloadSlack is what the sections besides the body may take before a
// delivery is dropped unread: the data plane cannot tell them apart.
const payloadSlack = 1 << 20

// receive attaches a subscription's receiving link on a session of its own.
//
// Spec: 2.6.3, 3.5.3.
func (cn *connection) receive(s *Subscription) (*receiving, error) {
	node, err := s.node.Source(cn.dialect)
	if err != nil {
		return nil, err
	}
	sess, err := cn.begin()
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	limit := int64(0)
	if s.opts.MaxMessageSize > 0 {
		limit = s.opts.MaxMessageSize + payloadSlack
	}
	name := rand.Text()
	link, err := sess.plane.Expect(wire.RoleReceiver, name, dataplane.LinkOptions{MaxMessage: limit, Window: s.opts.Credit})
	if err != nil {
		cn.discard(sess)
		return nil, err
	}
	options := &amqp.ReceiverOptions{Name: name, Credit: -1, Properties: s.opts.LinkProperties}
	if node.Capability != "" {
		options.SourceCapabilities = []string{node.Capability}
	}
	if s.opts.AtMostOnce {
		options.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	}
	recv, err := sess.amqp.NewReceiver(context.Background(), node.Address, options)
	if err != nil {
		err = cn.refused(link, err)
		cn.discard(sess)
		return nil, err
	}
	return &receiving{s: s, name: name, sess: sess, link: link, recv: recv, swept: make(chan chan struct{})}, nil
}

// send attaches a sending link on the publisher's session.
//
// Spec: 2.6.3, 3.5.4.
func (cn *connection) send(sess *session, node string, capability string) (*dataplane.Link, *amqp.Sender, error) {
	name := rand.Text()
	link, err := sess.plane.Expect(wire.RoleSender, name, dataplane.LinkOptions{})
	if err != nil {
		return nil, nil, err
	}
	options := &amqp.SenderOptions{Name: name}
	if capability != "" {
		options.TargetCapabilities = []string{capability}
	}
	sender, err := sess.amqp.NewSender(context.Background(), node, options)
	if err != nil {
		return nil, nil, cn.refused(link, err)
	}
	return link, sender, nil
}

// refused returns why an attach failed, in the peer's words where it gave any.
func (cn *connection) refused(link *dataplane.Link, err error) error {
	lost := link.Err()
	link.Forget()
	if lost == nil {
		return cn.cause(err)
	}
	return goError(lost)
}

// discard ends a session that nobody waits for.
func (cn *connection) discard(sess *session) {
	cn.calls.Go(func() { _ = sess.end(context.Background()) })
}

// release lets go of what is left of a lost receiving link: go-amqp's half of
// it, whose DETACH may still be due, and its session.
func (c *core) release(r *receiving) {
	conn := c.connection()
	if conn == nil {
		return
	}
	conn.calls.Go(func() {
		_ = r.recv.Close(context.Background())
		_ = r.sess.end(context.Background())
	})
}
