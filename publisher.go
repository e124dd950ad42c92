package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Publisher sends messages over its Broker's connection. It is safe for
// concurrent use, and can be kept from before Connect to after Shutdown.
type Publisher struct {
	c *core

	mu       sync.Mutex
	links    map[Address]*sending
	sess     *session       // of the sending links; replaced when it was lost
	active   sync.WaitGroup // publishes under way
	refusing bool           // no publish begins any more
	closed   bool           // nor one from a handler
}

func newPublisher(c *core) *Publisher {
	return &Publisher{c: c, links: make(map[Address]*sending)}
}

// buffers holds what messages are encoded into. Large ones are not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledBuffer = 64 << 10

// Publish sends v to addr and waits until the peer has accepted it.
//
// v is a []byte (content type application/octet-stream) or a string
// (text/plain), sent as they are; a json.RawMessage (application/json); an
// *amqp.Message, sent as its MarshalBinary writes it, with the options that
// are set over it; or anything else, encoded by the first codec, or by the one
// for PublishOptions.ContentType. It goes out as one data section, with a
// header section: durable, priority 4.
//
// Publishes to one address leave one at a time, in the order of the calls, a
// round trip each; two addresses do not wait for each other. The first publish
// to an address attaches its link. Publish keeps nothing of v or opts, and may
// be called from a handler.
//
// The answer is one of three, never mixed up:
//   - nil: the peer accepted the message;
//   - safe to publish again: a *PublishError (the peer refused it, or its
//     cause is ErrNotSent and no byte was sent), ErrNotConnected, or, before
//     anything was tried, an *EncodeError, an *OptionError or ErrInvalidAddress;
//   - ErrUncertain: the link was lost, or ctx ended, after the first frame had
//     been queued, or the peer settled without an outcome. The peer may have it.
//
// ctx bounds the call exactly; its error stays in the chain. A message whose
// first frame was queued is finished whatever ctx does.
//
// Spec: 2.6.12 (transferring a message), 2.7.5 (transfer), 3.4 (outcomes).
func (p *Publisher) Publish(ctx context.Context, addr Address, v any, opts ...*PublishOptions) error {
	o := one("Publish", opts)
	if p.c == nil {
		return errNilPublisher
	}
	started := p.c.clock()
	conn, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer p.active.Done()
	outcome, err := p.publish(ctx, conn, addr, v, &o)
	p.report(addr, outcome, started, err)
	return err
}

// enter counts a publish in. Once the broker shuts down only those from its
// own handlers are let in, so that a handler which publishes can finish.
func (p *Publisher) enter(ctx context.Context) (*connection, error) {
	conn := p.c.connection()
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn == nil || p.closed || p.refusing && p.c.worker(ctx) == nil {
		return nil, ErrNotConnected
	}
	p.active.Add(1)
	return conn, nil
}

func (p *Publisher) publish(ctx context.Context, conn *connection, addr Address, v any, o *PublishOptions) (Outcome, error) {
	node, err := addr.parse()
	if err != nil {
		return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w", addr, err)
	}
	target, err := node.Target(conn.dialect)
	if err != nil {
		return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w", addr, err)
	}
	buf := buffers.Get().(*[]byte)
	payload, err := p.encode((*buf)[:0], addr, v, o, conn.dialect)
	if err != nil {
		buffers.Put(buf)
		return OutcomeNone, err
	}
	link := p.link(conn, addr, target)
	receipt, err := link.send(ctx, payload)
	if receipt == nil || err == nil { // else the data plane still has the payload
		if cap(payload) <= maxPooledBuffer {
			*buf = payload
			buffers.Put(buf)
		}
	}
	if receipt != nil {
		defer link.settled(receipt)
	}
	if err != nil {
		return OutcomeNone, p.unsent(addr, err)
	}
	return p.await(ctx, addr, receipt)
}

// unsent is the error of a message that was not queued, or not to its end.
func (p *Publisher) unsent(addr Address, err error) error {
	if errors.Is(err, ErrUncertain) {
		return fmt.Errorf("amqpflow: publish to %q: %w", addr, goError(err))
	}
	failed := &PublishError{Address: addr, Err: err}
	if _, ok := errors.AsType[*dataplane.SizeError](err); ok {
		failed.Condition = amqp.ErrCondMessageSizeExceeded
	}
	if !errors.Is(err, ErrNotSent) {
		failed.Err = fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return failed
}

// await waits for the peer's disposition.
func (p *Publisher) await(ctx context.Context, addr Address, receipt *dataplane.Receipt) (Outcome, error) {
	select {
	case <-receipt.Done():
	default:
		select {
		case <-receipt.Done():
		case <-ctx.Done():
			return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w: %w", addr, ErrUncertain, ctx.Err())
		}
	}
	if err := receipt.Err(); err != nil {
		return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w", addr, goError(err))
	}
	state := receipt.Outcome()
	switch state.Kind {
	case wire.StateAccepted:
		return Accepted, nil
	case wire.StateReleased:
		return Released, &PublishError{Address: addr, Outcome: Released}
	case wire.StateModified:
		return Modified, &PublishError{Address: addr, Outcome: Modified, Info: modifiedInfo(&state)}
	case wire.StateRejected:
		refused := &PublishError{Address: addr, Outcome: Rejected}
		if state.Error != nil {
			remote := amqpError(state.Error)
			refused.Condition, refused.Description, refused.Info = remote.Condition, remote.Description, remote.Info
		}
		return Rejected, refused
	default:
		return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w: unknown outcome", addr, ErrUncertain)
	}
}

// modifiedInfo gives the fields of a modified outcome by the standard's names.
func modifiedInfo(state *wire.State) map[string]any {
	info := map[string]any{
		"delivery-failed":    state.DeliveryFailed,
		"undeliverable-here": state.UndeliverableHere,
	}
	if len(state.Annotations) > 0 {
		info["message-annotations"] = toGoMap(state.Annotations)
	}
	return info
}

func (p *Publisher) report(addr Address, outcome Outcome, started time.Time, err error) {
	if err != nil && errors.Is(err, ErrUncertain) {
		p.c.log.Warn("publish uncertain", logAddress, string(addr), logError, err)
	} else if p.c.log.Enabled(context.Background(), slog.LevelDebug) {
		p.c.log.Debug("published", logAddress, string(addr), logOutcome, outcome.String(), logError, err)
	}
	p.c.observe.published(addr, outcome, since(started), err)
}
