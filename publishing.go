package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/address"
	"github.com/amqpflow/amqpflow/internal/dataplane"
)

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
	if earlier := call.receipt; earlier != nil && earlier.plane != nil { // that of a message before this one
		call.receipt = &Receipt{started: call.started}
		defer func() {
			if call.receipt.plane == nil {
				call.receipt = earlier
			}
		}()
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

// report tells how a publish ended.
func (p *Publisher) report(addr Address, outcome Outcome, started time.Duration, err error) {
	p.note(addr, outcome, err)
	p.c.observe.published(addr, outcome, since(started), err)
}

// note is report without the observer.
func (p *Publisher) note(addr Address, outcome Outcome, err error) {
	if err != nil && errors.Is(err, ErrUncertain) {
		p.uncertain.Add(1)
		p.c.log.Warn("publish uncertain", logAddress, string(addr), logError, err)
	} else if p.c.log.Enabled(context.Background(), slog.LevelDebug) {
		p.c.log.Debug("published", append([]any{logAddress, string(addr), logOutcome, outcome.String()}, reason(err)...)...)
	}
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
