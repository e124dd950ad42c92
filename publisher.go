package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
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
// context that comes from the one it got.
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
// returns ErrNotConnected, with ctx's error, when ctx ends first; at once with
// Options.FailFastPublish, or where Options.MaxPending wait already. A link that
// the peer refuses is an *AttachError at once, for all who waited for it.
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

// publishing is one Publish, Send or reply under way.
type publishing struct {
	dialect address.Dialect
	pending bool // it is counted in Publisher.pending
	started time.Duration
	buf     []byte   // the message is encoded into it; nil once the data plane keeps it
	receipt *Receipt // of a Send or a reply; nil for a Publish
	reply   bool
	outcome Outcome // of a Publish
}

type publishingKey struct{}

// buffers holds what messages are encoded into. Large ones are not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledBuffer = 64 << 10

// enter counts a publish in, and among those that wait where the connection is
// lost. Once the broker shuts down only those from its own handlers are let in,
// so that a handler which publishes can finish.
func (p *Publisher) enter(ctx context.Context, call *publishing, addr Address) error {
	c := p.c
	if c == nil {
		return errNilPublisher
	}
	c.mu.Lock()
	connected, conn := c.connected, c.conn
	call.dialect = c.dialect
	c.mu.Unlock()
	open := conn != nil && !isClosed(conn.plane.Done())
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !connected || p.closed || p.refusing && c.worker(ctx) == nil:
		return c.notConnected()
	case open:
	case c.opts.FailFastPublish || c.life.Err() != nil:
		return c.notConnected()
	case p.pending >= c.opts.MaxPending:
		return unsent(addr, fmt.Errorf("%w (%d publishes wait already)", c.notConnected(), p.pending))
	default:
		call.pending = true
		p.pending++
	}
	p.active.Add(1)
	call.started = c.clock()
	return nil
}

// arrived counts a publish out of those that wait for a connection, if it is
// one of them.
func (p *Publisher) arrived(call *publishing) {
	if call.pending {
		call.pending = false
		p.mu.Lock()
		p.pending--
		p.mu.Unlock()
	}
}

// await returns the open connection, for a publish.
func (p *Publisher) await(ctx context.Context) (*connection, error) {
	c := p.c
	if c.opts.FailFastPublish {
		c.mu.Lock()
		conn := c.conn
		c.mu.Unlock()
		if !conn.usable() {
			return nil, c.notConnected()
		}
		return conn, nil
	}
	return c.await(ctx)
}

// waited is the error of a publish whose context ended before its turn came.
func (p *Publisher) waited(ctx context.Context) error {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn.usable() {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", c.notConnectedLocked(), ctx.Err())
}

// pooled is pass with a buffer that is used again.
func (p *Publisher) pooled(ctx context.Context, call *publishing, addr Address, v any, o *PublishOptions) error {
	buf := buffers.Get().(*[]byte)
	call.buf = *buf
	err := p.pass(ctx, call, addr, v, o)
	if call.buf != nil && cap(call.buf) <= maxPooledBuffer {
		*buf = call.buf
		buffers.Put(buf)
	}
	return err
}

// pass encodes v and takes it through the middleware, if any, to send.
func (p *Publisher) pass(ctx context.Context, call *publishing, addr Address, v any, o *PublishOptions) error {
	payload, err := p.encode(call.buf[:0], addr, v, o, call.dialect)
	if err != nil {
		return err
	}
	if p.chain == nil {
		return p.send(ctx, call, addr, payload)
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(payload); err != nil {
		return &EncodeError{Address: addr, Err: err}
	}
	shared := new(publishing) // a copy, so that without middleware none is allocated
	*shared = *call
	err = p.chain(context.WithValue(ctx, publishingKey{}, shared), addr, &m)
	*call = *shared
	return err
}

// innermost is what the middleware is around.
func (p *Publisher) innermost(ctx context.Context, addr Address, m *amqp.Message) error {
	call, _ := ctx.Value(publishingKey{}).(*publishing)
	if call == nil {
		return &PublishError{Address: addr, Err: fmt.Errorf("%w: the middleware's context does not come from the one it got", ErrNotSent)}
	}
	payload, err := encodeAMQP(call.buf[:0], addr, m, &PublishOptions{}, "")
	if err != nil {
		return err
	}
	return p.send(ctx, call, addr, payload)
}

// send puts an encoded message on its address's link.
func (p *Publisher) send(ctx context.Context, call *publishing, addr Address, payload []byte) error {
	call.buf = payload
	link, err := p.links.get(addr)
	if err != nil {
		return fmt.Errorf("amqpflow: publish to %q: %w", addr, err)
	}
	defer p.links.put(link)
	if call.receipt == nil {
		call.outcome, err = link.publish(ctx, call, payload)
		return err
	}
	if err := link.pipeline(ctx, call, payload); err != nil || !call.reply {
		return err
	}
	return call.receipt.Wait(ctx)
}

// Flush waits until the outcome of every Send that has returned is known, or
// ctx ends, whose error it returns then. It reports no outcome: Receipts do.
func (p *Publisher) Flush(ctx context.Context) error {
	if p.c == nil {
		return errNilPublisher
	}
	return p.unsettled.wait(ctx)
}

func (p *Publisher) report(addr Address, outcome Outcome, started time.Duration, err error) {
	if err != nil && errors.Is(err, ErrUncertain) {
		p.uncertain.Add(1)
		p.c.log.Warn("publish uncertain", logAddress, string(addr), logError, err)
	} else if p.c.log.Enabled(context.Background(), slog.LevelDebug) {
		p.c.log.Debug("published", append([]any{logAddress, string(addr), logOutcome, outcome.String()}, reason(err)...)...)
	}
	p.c.observe.published(addr, outcome, since(started), err)
}

// unsent is the error of a message that was not queued, or not to its end.
func unsent(addr Address, err error) error {
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
