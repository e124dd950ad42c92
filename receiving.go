package amqpflow

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// receiving is one attached receiving link of a subscription. A re-attached
// subscription gets another one, so a delivery that knows its receiving can
// never settle on a later link.
type receiving struct {
	s      *Subscription
	conn   *connection
	name   string
	sess   *session
	link   *dataplane.Link
	recv   *amqp.Receiver
	left   atomic.Bool // it counts towards its session no more
	health health
	begun  bool               // run is under way; the subscription's lock guards it
	swept  chan chan struct{} // sweep sends, run or tell receives and closes what it got

	collecting sync.Mutex // held by who collects; it guards these
	buf        [receiveBatch]dataplane.Delivery
	filled     int           // how many deliveries of one turn buf has
	next       int           // the first of them that is in no lane
	lanes      [][]*Delivery // what one turn brings to each inbox
	turn       int           // the lane of the next delivery without a key
	refused    []refusal     // to be told of without the lock
}

// receiveBatch is how many deliveries one turn takes from the link.
const receiveBatch = 64

// run watches over the link, until it is gone. It collects what the link brings,
// unless workers do that themselves, which saves a goroutine on the way of a
// delivery. It is serve's.
func (r *receiving) run() {
	r.collect() // what PartitionBy left behind by runtime.Goexit
	ready := r.watched()
	for {
		select {
		case <-ready:
			r.grant(!r.collect()) // what came may be for others than who waits
			ready = r.watched()
		case <-r.link.Noticed():
			back := r.takenBack()
			if len(back) > 0 {
				r.collect() // what they are about may be among it
			}
			for range back {
				r.s.c.log.Warn("delivery taken back by the peer", logAddress, string(r.s.addr), logLink, r.name)
			}
			r.s.takenBack(r, back)
			r.s.reader.settled()
			// An aborted delivery uses credit up that nobody settles.
			r.grant(true)
		case done := <-r.swept:
			_, refused := r.gather()
			close(done)
			r.tell(refused)
			ready = r.watched()
		case <-r.link.Done():
			return
		}
	}
}

// watched is what tells run that the link has brought something: nothing where
// workers collect that, unless nothing may begin, so that they may never come.
func (r *receiving) watched() <-chan struct{} {
	s := r.s
	if s.pulls() && !s.stopping.Load() && !s.paused.Load() {
		return nil
	}
	return r.link.Ready()
}

// sweep returns once everything that the link has brought is in the inbox, or
// soon after ctx has ended: run may hang in a function of the user. Where run was
// never begun that is nothing.
func (r *receiving) sweep(ctx context.Context) {
	r.s.mu.Lock()
	begun := r.begun
	r.s.mu.Unlock()
	if !begun {
		return
	}
	ctx, cancel := withinGrace(ctx)
	defer cancel()
	done := make(chan struct{})
	select {
	case r.swept <- done:
	case <-r.link.Done():
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// collect moves what the link has brought to the inboxes, and says whether that
// was anything.
func (r *receiving) collect() (brought bool) {
	brought, refused := r.gather()
	r.tell(refused)
	return brought
}

// gather is collect, and returns what is to be told of.
func (r *receiving) gather() (brought bool, refused []refusal) {
	r.collecting.Lock()
	defer r.collecting.Unlock()
	if isClosed(r.link.Done()) { // what it brought is purged
		return false, nil
	}
	for r.fetch() {
		brought = true
		var came time.Duration
		if r.s.prepare != nil {
			came = time.Since(processStart)
		}
		for r.next < r.filled {
			in := &r.buf[r.next]
			r.next++
			if d := r.read(in); d != nil {
				d.at = came
				r.place(d)
			}
		}
		clear(r.buf[:r.filled])
		r.filled, r.next = 0, 0
		for i, ds := range r.lanes {
			r.s.inboxes[i].push(ds)
			clear(ds)
			r.lanes[i] = ds[:0]
		}
		if r.s.paused.Load() {
			_ = r.s.releaseHeld() // a link that is gone is noticed by run
		}
	}
	if brought {
		r.s.reader.settled() // some may have been refused
	}
	refused, r.refused = r.refused, nil
	return brought, refused
}

// fetch takes from the link what is to be gathered, unless some of the last turn
// is left.
func (r *receiving) fetch() bool {
	if r.filled > 0 {
		return true
	}
	if r.filled = r.link.Deliveries(r.buf[:]); r.filled == 0 {
		return false
	}
	r.health.move()
	r.conn.health.move()
	r.s.received.Add(uint64(r.filled))
	return true
}

// place gives a delivery to its lane, even where runtime.Goexit in PartitionBy
// lets nothing behind it run.
func (r *receiving) place(d *Delivery) {
	if len(r.lanes) == 1 {
		r.lanes[0] = append(r.lanes[0], d)
		return
	}
	key := ""
	defer func() {
		lane := r.lane(key)
		r.lanes[lane] = append(r.lanes[lane], d)
	}()
	key = r.s.partition(d)
}

// lane returns the index of a key's inbox.
func (r *receiving) lane(key string) int {
	n := len(r.lanes)
	if key != "" {
		return int(maphash.String(laneSeed, key) % uint64(n))
	}
	r.turn = (r.turn + 1) % n
	return r.turn
}

var laneSeed = maphash.MakeSeed()

// partition asks for a delivery's key; a panic leaves it without one.
func (s *Subscription) partition(d *Delivery) (key string) {
	returned := false
	defer func() {
		if !returned { // the value is nil after runtime.Goexit
			s.c.log.Error("PartitionBy panicked", logAddress, string(s.addr), logError, fmt.Sprint(recover()), "stack", string(debug.Stack()))
		}
	}()
	key = s.opts.PartitionBy(d)
	returned = true
	return key
}

// read finds the sections of a delivery. One that no handler may see is
// rejected and reported, and read returns nil.
func (r *receiving) read(in *dataplane.Delivery) *Delivery {
	limit := r.s.opts.MaxMessageSize
	if in.TooLarge {
		r.refuse(in, amqp.ErrCondMessageSizeExceeded, &MessageTooLargeError{Address: r.s.addr, Size: in.Size, Limit: limit})
		return nil
	}
	var sections wire.Sections
	if err := sections.Parse(in.Payload); err != nil {
		r.refuse(in, amqp.ErrCondDecodeError, &UnreadableError{Address: r.s.addr, Err: err})
		return nil
	}
	data, section := bodyBytes(&sections)
	if section != "" {
		r.refuse(in, amqp.ErrCondNotImplemented, &BodyError{Address: r.s.addr, Section: section})
		return nil
	}
	if limit > 0 && int64(len(data)) > limit {
		r.refuse(in, amqp.ErrCondMessageSizeExceeded, &MessageTooLargeError{Address: r.s.addr, Size: int64(len(data)), Limit: limit})
		return nil
	}
	d := r.s.newDelivery()
	d.from, d.id, d.settled = r, in.ID, in.Settled
	d.count = sections.Header.DeliveryCount
	d.payload, d.data = in.Payload, data
	d.props, d.headers = sections.Properties, sections.ApplicationProperties
	if r.s.handover.pending.Load() > 0 && !sections.Header.FirstAcquirer {
		r.s.returned(d)
	}
	return d
}

// bodyBytes returns the body's bytes, or the name of a section that has none.
func bodyBytes(s *wire.Sections) (data []byte, section string) {
	switch s.Body {
	case wire.BodyNone:
		return nil, ""
	case wire.BodyData:
		if s.DataCount == 1 {
			return s.Data, ""
		}
		return s.AppendBody(nil), ""
	case wire.BodyValue:
		if b, ok := wire.RawBytes(s.Value); ok {
			return b, ""
		}
		if v, _, err := wire.DecodeValue(s.Value); err == nil && v == nil {
			return nil, ""
		}
		return nil, "an amqp-value that is no string and no binary"
	default:
		return nil, "an amqp-sequence"
	}
}

// grant tops the credit up, once half of the window is free. Where that leaves
// the link without credit, and force says so or somebody waits for deliveries,
// whatever is free is granted: those that are held for long starve nobody.
// Nothing is granted while the subscription is paused, and once it stops.
func (r *receiving) grant(force bool) {
	if r.s.stopping.Load() || r.s.paused.Load() {
		return
	}
	if force || r.s.waiting.Load() > 0 {
		credit, _ := r.link.Credit()
		force = credit == 0
	}
	// A link that is gone is noticed by run, which says so.
	_ = r.link.Grant(r.s.opts.Credit, force)
}

// lost says that the subscription's link is gone, and why.
func (s *Subscription) lost(cause error) error {
	if errors.Is(cause, ErrLinkLost) {
		return fmt.Errorf("amqpflow: receive from %q: %w", s.addr, cause)
	}
	return fmt.Errorf("amqpflow: receive from %q: %w: %w", s.addr, ErrLinkLost, cause)
}
