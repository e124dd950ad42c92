package amqpflow

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// go-amqp makes and ends sessions and links; the data plane carries what goes
// over them. No context that can end reaches go-amqp: an ended one would leave
// a BEGIN half done or a link name taken. Whoever cannot wait gives up by
// itself, or aborts the connection, which frees every call.

// payloadSlack is what the sections besides the body may take before a
// delivery is dropped unread: the data plane cannot tell them apart.
const payloadSlack = 1 << 20

// attachReceiver attaches a subscription's receiving link.
//
// Spec: 2.6.3, 3.5.3.
func (cn *connection) attachReceiver(s *Subscription) (*receiving, error) {
	node, err := s.source(cn.dialect)
	if err != nil {
		return nil, err
	}
	sess, err := cn.receivingSession()
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	limit := int64(0)
	if s.opts.MaxMessageSize > 0 {
		limit = s.opts.MaxMessageSize + payloadSlack
	}
	name := rand.Text()
	link, err := sess.plane.Expect(wire.RoleReceiver, name, dataplane.LinkOptions{
		MaxMessage: limit, Window: s.opts.Credit, Returned: cn.returned(),
	})
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
	r := &receiving{
		s: s, conn: cn, name: name, sess: sess, link: link, recv: recv, swept: make(chan chan struct{}),
		lanes: make([][]*Delivery, len(s.inboxes)),
	}
	r.health.begin()
	return r, nil
}

// source is the node to receive from, as the peer names it. Where that is the
// node for dead letters by another name, each of them would come back.
func (s *Subscription) source(d address.Dialect) (address.Node, error) {
	node, err := s.node.Source(d)
	if err != nil || s.opts.DeadLetter == "" {
		return node, err
	}
	dead, err := s.opts.DeadLetter.parse()
	if err != nil {
		return node, err
	}
	target, err := dead.Target(d)
	if target.Same(node) {
		return node, errDeadLetterToItself
	}
	return node, err
}

// attachSender attaches a sending link on the publisher's session.
//
// Spec: 2.6.3, 3.5.4.
func (cn *connection) attachSender(sess *session, name string, node address.Node) (*dataplane.Link, *amqp.Sender, error) {
	link, err := sess.plane.Expect(wire.RoleSender, name, dataplane.LinkOptions{})
	if err != nil {
		return nil, nil, err
	}
	options := &amqp.SenderOptions{Name: name}
	if node.Capability != "" {
		options.TargetCapabilities = []string{node.Capability}
	}
	sender, err := sess.amqp.NewSender(context.Background(), node.Address, options)
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

// release lets go of a receiving link that nobody has any more: go-amqp's half
// of it, whose DETACH may still be due, and its session.
func (c *core) release(r *receiving) {
	c.calls.Go(func() {
		_ = r.recv.Close(context.Background())
		_ = r.leave(context.Background())
	})
}

// leave takes the link off its session, once: after a loss Close and Shutdown
// come, too, and the session may be other links' as well.
func (r *receiving) leave(ctx context.Context) error {
	if !r.left.CompareAndSwap(false, true) {
		return nil
	}
	return r.conn.leave(ctx, r.sess)
}
