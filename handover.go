package amqpflow

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// handOverAbove is how long a hold has to be to be the broker's.
var handOverAbove = 10 * time.Second

// deliveryTime is the annotation of modified that says before when RabbitMQ does
// not deliver the message again.
const deliveryTime = wire.Symbol("x-opt-delivery-time")

// maxHandedOver bounds what a subscription remembers of such retries.
const maxHandedOver = 1024

// handover remembers the retries that the broker holds, to learn whether it
// does: a queue that gives one back at once never does.
type handover struct {
	pending atomic.Int32 // entries of until
	refused atomic.Bool  // every retry is held here

	mu    sync.Mutex
	until map[uint64]returning // by what does not change about a message
}

type returning struct {
	from       *receiving
	early, due time.Time // before early it comes too early
}

// handsOver says whether a retry is to be held by the broker.
func (s *Subscription) handsOver(d *Delivery, delay time.Duration) bool {
	return delay > handOverAbove && d.from.conn.holds && !s.handover.refused.Load()
}

// remember remembers a retry that was handed over.
func (h *handover) remember(d *Delivery, delay time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if len(h.until) >= maxHandedOver {
		h.forgetLocked(now)
	}
	if len(h.until) < maxHandedOver {
		if h.until == nil {
			h.until = make(map[uint64]returning)
		}
		h.until[d.fingerprint()] = returning{from: d.from, early: now.Add(delay / 2), due: now.Add(delay)}
		h.pending.Store(int32(len(h.until)))
	}
}

// forget forgets what was handed over on a link that is lost: the peer may never
// have heard of it, and delivers it again at once.
func (h *handover) forget(r *receiving) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.until, func(_ uint64, e returning) bool { return e.from == r })
	h.pending.Store(int32(len(h.until)))
}

// forgetLocked forgets what is due: another consumer may have got it.
func (h *handover) forgetLocked(now time.Time) {
	for message, r := range h.until {
		if now.After(r.due) {
			delete(h.until, message)
		}
	}
}

// delayed is a retry's state with the time before which it is not to come back.
func delayed(state *wire.State, delay time.Duration) *wire.State {
	with := *state
	with.Annotations = append(slices.Clip(with.Annotations), wire.Entry{Key: deliveryTime, Value: time.Now().Add(delay)})
	return &with
}

// returned looks whether a delivery that came a second time was to come later.
func (s *Subscription) returned(d *Delivery) {
	h := &s.handover
	h.mu.Lock()
	message, now := d.fingerprint(), time.Now()
	r, known := h.until[message]
	early := known && now.Before(r.early)
	delete(h.until, message)
	if early {
		clear(h.until)
	} else {
		h.forgetLocked(now)
	}
	h.pending.Store(int32(len(h.until)))
	h.mu.Unlock()
	if early && h.refused.CompareAndSwap(false, true) {
		s.c.log.Warn("the peer does not hold retries of this address: they are held here", logAddress, string(s.addr),
			logMessage, d.MessageID(), logDelay, time.Until(r.due))
	}
}

var fingerprintSeed = maphash.MakeSeed()

// fingerprint tells messages apart by what an intermediary does not change.
//
// Spec: 3.2 (the bare message).
func (d *Delivery) fingerprint() uint64 {
	var h maphash.Hash
	h.SetSeed(fingerprintSeed)
	for _, part := range [][]byte{d.props, d.headers, d.data} {
		_, _ = h.Write(part)
	}
	return h.Sum64()
}
