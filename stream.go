package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"
)

// Stream is a subscription without a handler: its deliveries are ranged over,
// and settled by whoever ranges. Those that are not settled stay in the window
// (SubscribeOptions.Credit), so a reader that settles nothing comes to a halt.
type Stream struct{ *Subscription }

// Stream registers a Stream for addr. Everything that Subscribe says of
// registration, attaching and errors holds for it; the options that concern
// handlers mean nothing to it, except OnFailure, for Messages.
//
// Shutdown and Close wait, within their context, until what the stream holds
// has been yielded and settled. When that context ends first the link goes;
// the rest is still yielded, then the sequence ends, and settling one of those
// returns an error that wraps ErrLinkLost or ErrShutdown.
func (b *Broker) Stream(addr Address, opts ...*SubscribeOptions) *Stream {
	s := b.register(addr, one("Stream", opts), stream)
	s.newDelivery = func() *Delivery { return new(Delivery) }
	s.reader = &reader{s: s, changed: make(chan struct{}, 1), yielded: map[uint32]*Delivery{}}
	s.start(nil)
	return &Stream{s}
}

// Deliveries yields the stream's deliveries in order, each with a nil error,
// and waits for more until ctx ends, or the stream does. It ends without an
// error after ctx, Close or a clean Shutdown, else with one (nil, Err()).
//
// Leaving the loop keeps the link, and the next call goes on. Ranging twice at
// once yields one error.
func (s *Stream) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		r := s.reader
		if err := r.enter(); err != nil {
			yield(nil, err)
			return
		}
		defer r.leave()
		for {
			d, err := r.next(ctx)
			if d == nil {
				if err != nil {
					yield(nil, err)
				}
				return
			}
			if !r.yield(d, yield) {
				return
			}
		}
	}
}

// Messages yields the stream's messages, their bodies decoded into T, under
// the terms of Deliveries. One that cannot be decoded is settled, as
// SubscribeOptions.OnFailure says (by default rejected), and yielded with a
// zero Body and its *DecodeError.
func Messages[T any](ctx context.Context, s *Stream) iter.Seq2[*Message[T], error] {
	return func(yield func(*Message[T], error) bool) {
		for d, err := range s.Deliveries(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			m := &Message[T]{Delivery: d}
			if err = decodeBody(s.codecs, d, &m.Body); err != nil {
				var zero T
				m.Body = zero
				s.finish(ctx, d, err, s.c.clock(), nil)
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// reader is the ranging side of a Stream. Its methods do nothing on a nil one.
type reader struct {
	s       *Subscription
	changed chan struct{} // capacity 1; settled and leave send, quiet receives, nobody closes it

	mu      sync.Mutex
	ranging bool
	yielded map[uint32]*Delivery // by delivery-id; not settled
}

var errRanging = errors.New("amqpflow: the stream is being ranged over already")

func (r *reader) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ranging {
		return fmt.Errorf("%w: %q", errRanging, r.s.addr)
	}
	r.ranging = true
	return nil
}

func (r *reader) leave() {
	r.mu.Lock()
	r.ranging = false
	r.mu.Unlock()
	r.settled()
}

// settled wakes a Shutdown that waits for the stream.
func (r *reader) settled() {
	if r == nil {
		return
	}
	signal(r.changed)
}

// done forgets a delivery that was settled, or answered for.
func (r *reader) done(d *Delivery) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.yielded[d.id] == d {
		delete(r.yielded, d.id)
	}
	r.mu.Unlock()
	r.settled()
}

// lost forgets what was yielded of a link that is gone.
func (r *reader) lost(link *receiving) {
	if r == nil {
		return
	}
	r.mu.Lock()
	maps.DeleteFunc(r.yielded, func(_ uint32, d *Delivery) bool { return d.from == link })
	r.mu.Unlock()
	r.settled()
}

// takenBack answers for a yielded delivery that the peer took back: settling it
// is an error from then on.
func (r *reader) takenBack(link *receiving, id uint32) {
	if r == nil {
		return
	}
	r.mu.Lock()
	d := r.yielded[id]
	r.mu.Unlock()
	if d != nil && d.from == link {
		r.s.giveUp(d)
	}
}

// unsettled returns how many deliveries were yielded and not settled.
func (r *reader) unsettled() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.yielded)
}

// take takes the oldest delivery. Taking and remembering it are one step, so
// that takenBack finds it.
func (r *reader) take() (d *Delivery, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var one [1]*Delivery
	ds, closed := r.s.inboxes[0].take(one[:0], 1)
	if len(ds) == 0 {
		return nil, closed
	}
	if !ds[0].settled {
		r.yielded[ds[0].id] = ds[0]
	}
	return ds[0], closed
}

// next waits for the next delivery. Without one, err is why the stream ended.
func (r *reader) next(ctx context.Context) (*Delivery, error) {
	for {
		if isClosed(ctx.Done()) {
			return nil, nil
		}
		d, closed := r.take()
		switch {
		case d != nil:
			return d, nil
		case closed:
			return nil, r.s.Err()
		}
		r.s.await(r.s.inboxes[0], ctx.Done())
	}
}

// yield gives one delivery to the loop's body. One that the peer sent settled
// only occupies the window until the body is done with it.
func (r *reader) yield(d *Delivery, yield func(*Delivery, error) bool) bool {
	d.at = r.s.c.clock()
	if d.settled {
		defer d.leave()
	}
	return yield(d, nil)
}

// quiet waits until everything that the stream holds has been yielded and
// settled. What nobody ranges over is released.
func (r *reader) quiet(ctx context.Context, link *receiving) error {
	for {
		r.mu.Lock()
		ranging := r.ranging
		r.mu.Unlock()
		if !ranging {
			if err := r.s.releaseHeld(); err != nil {
				return err
			}
		}
		_, outstanding := link.link.Credit()
		if outstanding == 0 {
			return nil
		}
		select {
		case <-r.changed:
		case <-link.link.Done():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("amqpflow: stop %q: the stream's reader holds %d deliveries: %w", r.s.addr, outstanding, ctx.Err())
		}
	}
}
