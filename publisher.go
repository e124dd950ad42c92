package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/Azure/go-amqp"
)

// Publisher sends messages over its Broker's connection. It is safe for
// concurrent use, and can be kept from before Connect to after Shutdown.
type Publisher struct {
	c     *core
	chain PublishFunc // middleware around send; nil without any

	links     linkCache
	unsettled epochs
	uncertain atomic.Uint64 // publishes that ended so

	mu       sync.Mutex
	active   sync.WaitGroup // publishes whose outcome is not known
	pending  int            // publishes that wait for a connection
	refusing bool           // no publish begins any more, but a handler's
	closed   bool           // nor a handler's
}

// PublishFunc sends a message, or is the middleware around that. For a Publish
// and a reply it returns when the outcome is known, with the error that they
// return; for a Send when the message is queued.
type PublishFunc func(ctx context.Context, addr Address, m *amqp.Message) error

// PublishMiddleware wraps every Publish, Send and reply. It is applied once,
// by New. It gets the whole encoded message, may change it, and must pass on a
// context that comes from the one it got. It may call next more than once
// before it returns, one call after the other, to any address: each call sends a
// message of its own, and a Send's Receipt is that of the last one queued.
type PublishMiddleware func(next PublishFunc) PublishFunc

func newPublisher(c *core) *Publisher {
	p := &Publisher{c: c}
	p.links.init(p)
	p.unsettled.init()
	if len(c.opts.PublishMiddleware) == 0 || c.invalid != nil {
		return p
	}
	p.chain = p.innermost
	for _, m := range slices.Backward(c.opts.PublishMiddleware) {
		p.chain = m(p.chain)
	}
	return p
}

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
// round trip each, behind the Sends before them; two addresses do not wait for
// each other. The first publish to an address attaches its link. Publish keeps
// nothing of v or opts, and may be called from a handler.
//
// The answer is one of three, never mixed up:
//   - nil: the peer accepted the message;
//   - safe to publish again: a *PublishError (the peer refused it, or its
//     cause is ErrNotSent and no byte was sent), ErrNotConnected, or, before
//     anything was tried, an *EncodeError, an *OptionError or ErrInvalidAddress;
//   - ErrUncertain: the link was lost, or ctx ended, after the first frame had
//     been queued, or the peer settled without an outcome. The peer may have it.
//
// While the connection is lost, or the link before the first frame was queued,
// Publish waits for the next one, behind the publishes to addr before it, and
// returns ErrNotConnected, with ctx's error, when ctx ends first; at once when the
// broker shuts down, with Options.FailFastPublish, or where Options.MaxPending wait
// already. A link that the peer refuses is an *AttachError at once, for all who
// waited for it.
//
// ctx bounds the call exactly; its error stays in the chain. A message whose
// first frame was queued is finished whatever ctx does. Nothing is sent again by
// itself: whoever sends what is uncertain again sets PublishOptions.MessageID,
// the same both times.
//
// Spec: 2.6.12 (transferring a message), 2.7.5 (transfer), 3.4 (outcomes).
func (p *Publisher) Publish(ctx context.Context, addr Address, v any, opts ...*PublishOptions) error {
	o := pick("Publish", opts)
	var call publishing
	if err := p.enter(ctx, &call, addr); err != nil {
		return err
	}
	defer p.active.Done()
	err := p.pooled(ctx, &call, addr, v, o)
	p.arrived(&call)
	p.report(addr, call.outcome, call.started, err)
	return err
}

// Send queues v for addr and returns a Receipt for its outcome, without
// waiting for it: up to Options.MaxInFlight messages to one address are under
// way at once. They leave in the order of the calls, Publishes among them; a
// Send waits for a Publish before it, and for a free place, within ctx.
//
// v, opts and the errors are those of Publish. An error means that the message
// was not sent, unless it is ErrUncertain, when ctx ended, or the link was
// lost, while a message of several frames was under way: then the Receipt is
// returned beside it.
//
// Spec: 2.6.12.
func (p *Publisher) Send(ctx context.Context, addr Address, v any, opts ...*PublishOptions) (*Receipt, error) {
	o := pick("Send", opts)
	var call publishing
	if err := p.enter(ctx, &call, addr); err != nil {
		return nil, err
	}
	defer p.active.Done()
	call.receipt = &Receipt{started: call.started}
	err := p.pooled(ctx, &call, addr, v, o)
	p.arrived(&call)
	if call.receipt.plane == nil {
		if err == nil {
			err = unsent(addr, errKept)
		}
		p.report(addr, OutcomeNone, call.started, err)
		return nil, err
	}
	return call.receipt, err
}

var errKept = errors.New("no middleware passed the message on")

// reply sends a handler's reply and waits for its outcome. Many replies to one
// address may be under way; the worker's buffer is used again for the next
// unless the data plane has kept it.
func (p *Publisher) reply(ctx context.Context, d *Delivery, to Address, v any) error {
	return p.confirmed(ctx, to, func(call *publishing) error {
		w := p.c.worker(ctx)
		if w != nil {
			call.buf, w.reply = w.reply, nil
		}
		err := p.pass(ctx, call, to, v, &PublishOptions{CorrelationID: d.replyCorrelation()})
		if w != nil && cap(call.buf) <= maxPooledBuffer {
			w.reply = call.buf
		}
		return err
	})
}

// forward sends a message that is encoded, past the middleware, and waits for
// its outcome. Many to one address may be under way.
func (p *Publisher) forward(ctx context.Context, to Address, payload []byte) error {
	return p.confirmed(ctx, to, func(call *publishing) error { return p.send(ctx, call, to, payload) })
}

// confirmed is the frame of what a handler's end publishes: send waits for the
// outcome.
func (p *Publisher) confirmed(ctx context.Context, to Address, send func(*publishing) error) error {
	var call publishing
	if err := p.enter(ctx, &call, to); err != nil {
		return err
	}
	defer p.active.Done()
	call.receipt, call.reply = &Receipt{started: call.started}, true
	err := send(&call)
	p.arrived(&call)
	if call.receipt.plane == nil {
		p.report(to, OutcomeNone, call.started, err)
	}
	return err
}

// Flush waits until the outcome of every Send that has returned is known, or
// ctx ends, whose error it returns then. It reports no outcome: Receipts do.
func (p *Publisher) Flush(ctx context.Context) error {
	if p.c == nil {
		return errNilPublisher
	}
	return p.unsettled.wait(ctx)
}

// refuse lets no publish begin but those of handlers.
func (p *Publisher) refuse() {
	p.mu.Lock()
	p.refusing = true
	p.mu.Unlock()
}

// close waits for the publishes under way and closes the sending links.
func (p *Publisher) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	idle := make(chan struct{})
	p.c.enders.Go(func() {
		p.active.Wait()
		close(idle)
	})
	var waited error
	select {
	case <-idle:
	case <-ctx.Done():
		waited = fmt.Errorf("amqpflow: publishes under way: %w", ctx.Err())
	}
	return first(waited, each(p.links.empty(), func(l *sendingLink) error { return l.close(ctx) }))
}
