package main

import (
	"context"
	"time"

	"github.com/amqpflow/amqpflow"
)

// load is what publishers and subscribers do in one run. The zero value of a
// field means its default.
type load struct {
	// Messages is how many are published in all. Default: as many as come
	// until the faults are over.
	Messages int
	// Rate is in messages a second, in all. Default: as fast as it goes.
	Rate int
	// Queues each have publishers and a subscription of their own. Default: 1.
	Queues int
	// Senders Send and Publishers Publish; so many of each for a queue.
	// Default: 2 and 1.
	Senders, Publishers int
	// Size is that of a body, by sequence number. Default: 64 to 1,000 bytes.
	Size func(seq int) int
	// Value is published instead of a body, unless it is nil.
	Value func(publisher, seq int) any
	// Patience is the time that one publish has. Default: 1 min.
	Patience time.Duration
	// Hurry gives each publish and settlement a random time up to it instead.
	Hurry time.Duration
	// Midway shuts down while messages are still published.
	Midway bool

	// Prefix begins the queues' names.
	Prefix string

	// Subscribe's default here: 100 of Credit, 4 Workers.
	Subscribe amqpflow.SubscribeOptions
	Options   amqpflow.Options
	// Codec, if set, decodes for a typed handler.
	Codec amqpflow.Codec
	// Mixed lets some handlers release or retry.
	Mixed bool
	// Handle decides instead of Mixed.
	Handle func(ctx context.Context, d *amqpflow.Delivery, c call) error
	// Release, if set, is called after Shutdown has returned: it frees handlers
	// that hang.
	Release func()

	// StopWithin is the time that Shutdown has. Default: 10 s.
	StopWithin time.Duration
	// HeapBound is that of the live heap, in bytes. Default: 64 MiB.
	HeapBound int64
	// Recovery is how long after the peer accepts again the first message may
	// take. Default: 1 s.
	Recovery time.Duration
	// FromAttach measures that from the attach, where the peer refuses links
	// for a while after it has accepted the connection.
	FromAttach bool
	// Unseen is how many messages end without any handler. Default: none.
	Unseen func(*trial) int64
	// Expect is asked at the end about what is special to the run.
	Expect func(*verdict, *trial)
}

// call is one attempt as its handler sees it.
type call struct {
	publisher, seq, attempt int
}

func (l load) withDefaults() load {
	l.Queues = or(l.Queues, 1)
	if l.Senders == 0 && l.Publishers == 0 {
		l.Senders, l.Publishers = 2, 1
	}
	l.Patience = or(l.Patience, time.Minute)
	l.Subscribe.Credit = or(l.Subscribe.Credit, 100)
	l.Subscribe.Workers = or(l.Subscribe.Workers, 4)
	l.HeapBound = or(l.HeapBound, 64<<20)
	l.Recovery = or(l.Recovery, time.Second)
	l.StopWithin = or(l.StopWithin, 10*time.Second)
	if l.Size == nil {
		l.Size = func(n int) int { return 64 + n*37%936 }
	}
	return l
}

func (l load) publishers() int { return l.Queues * (l.Senders + l.Publishers) }

// interval is the time between two messages of one publisher.
func (l load) interval() time.Duration {
	if l.Rate == 0 {
		return 0
	}
	return time.Second * time.Duration(l.publishers()) / time.Duration(l.Rate)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
