package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/amqpflow/amqpflow"
)

// Answer is what a publisher was told of one message.
type Answer uint8

// The answers. Every publish ends in exactly one of the last four.
const (
	Unanswered Answer = iota
	Confirmed
	Refused
	NotSent
	Uncertain
)

// ending is how the handler of one attempt ended.
type ending uint8

const (
	running ending = iota
	accepts
	rejects
	handsBack // released or modified
	keeps     // ended without an outcome
)

// attempt is one call of the handler.
type attempt struct {
	delivery   *amqpflow.Delivery // until everything of it is known
	start, end time.Duration      // since the ledger's
	link       uint32             // generation
	ending     ending
	settled    bool // the disposition was handed to the connection
	lost       bool // it was not: the link was gone
}

// forget lets go of a delivery of which everything is known.
func (a *attempt) forget() {
	if a.ending != running && (a.settled || a.lost) {
		a.delivery = nil
	}
}

// record is one message.
type record struct {
	first    attempt
	more     []attempt
	n        uint32 // attempts
	answer   Answer
	answers  uint8
	finished bool // some attempt accepted or rejected it
}

func (r *record) attempts() []attempt {
	if r.n == 0 {
		return nil
	}
	return append([]attempt{r.first}, r.more...)
}

func (r *record) last(d *amqpflow.Delivery) *attempt {
	for i := len(r.more) - 1; i >= 0; i-- {
		if r.more[i].delivery == d {
			return &r.more[i]
		}
	}
	if r.first.delivery == d {
		return &r.first
	}
	return nil
}

// ledger says of every message what its publisher was told and what every
// handler made of it. It is safe for concurrent use.
type ledger struct {
	run     string
	started time.Time
	shards  []shard // one for each publisher

	confirmed, settledUp atomic.Int64 // messages confirmed; and of those, how many are finished
	attempts, progress   atomic.Int64
	strangers            atomic.Int64 // attempts of messages that nobody published
	corrupt              atomic.Int64 // attempts whose body was not the one published
}

const pageSize = 1024

type shard struct {
	mu    sync.Mutex
	pages [][]record
	n     int
}

func newLedger(run string, publishers int) *ledger {
	return &ledger{run: run, started: time.Now(), shards: make([]shard, publishers)}
}

// id is the message-id: run, publisher, sequence number.
func (l *ledger) id(publisher, seq int) string {
	return l.run + "/" + strconv.Itoa(publisher) + "/" + strconv.Itoa(seq)
}

// parse is the inverse of id.
func (l *ledger) parse(id string) (publisher, seq int, ok bool) {
	rest, ok := strings.CutPrefix(id, l.run+"/")
	if !ok {
		return 0, 0, false
	}
	p, s, ok := strings.Cut(rest, "/")
	if !ok {
		return 0, 0, false
	}
	publisher, err := strconv.Atoi(p)
	if err != nil {
		return 0, 0, false
	}
	seq, err = strconv.Atoi(s)
	return publisher, seq, err == nil && publisher >= 0 && publisher < len(l.shards) && seq >= 0
}

// publish opens the record of a publisher's next message.
func (l *ledger) publish(publisher int) (seq int) {
	s := &l.shards[publisher]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n%pageSize == 0 {
		s.pages = append(s.pages, make([]record, pageSize))
	}
	s.n++
	return s.n - 1
}

// with calls f with a record under its lock; false if there is none.
func (l *ledger) with(publisher, seq int, f func(*record)) bool {
	s := &l.shards[publisher]
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq >= s.n {
		return false
	}
	f(&s.pages[seq/pageSize][seq%pageSize])
	return true
}

// answered notes what the publisher was told.
func (l *ledger) answered(publisher, seq int, answer Answer) {
	l.progress.Add(1)
	l.with(publisher, seq, func(r *record) {
		r.answers++
		r.answer = answer
		if answer == Confirmed {
			l.confirmed.Add(1)
			if r.finished {
				l.settledUp.Add(1)
			}
		}
	})
}

// begin notes that a handler was called, and returns which attempt it is.
func (l *ledger) begin(publisher, seq int, d *amqpflow.Delivery, link uint32) (number int, ok bool) {
	now := time.Since(l.started)
	l.progress.Add(1)
	l.attempts.Add(1)
	ok = l.with(publisher, seq, func(r *record) {
		a := attempt{delivery: d, start: now, link: link}
		if r.n == 0 {
			r.first = a
		} else {
			r.more = append(r.more, a)
		}
		r.n++
		number = int(r.n)
	})
	return number, ok
}

// ended notes how the handler ended.
func (l *ledger) ended(publisher, seq int, d *amqpflow.Delivery, how ending) {
	now := time.Since(l.started)
	l.with(publisher, seq, func(r *record) {
		if a := r.last(d); a != nil {
			a.ending, a.end = how, now
			a.forget()
		}
		if (how == accepts || how == rejects) && !r.finished {
			r.finished = true
			if r.answer == Confirmed {
				l.settledUp.Add(1)
			}
		}
	})
}

// settled notes that the disposition was handed to the connection, or that the
// link was gone.
func (l *ledger) settled(publisher, seq int, d *amqpflow.Delivery, lost bool) {
	l.progress.Add(1)
	l.with(publisher, seq, func(r *record) {
		if a := r.last(d); a != nil {
			a.settled, a.lost = !lost, lost
			a.forget()
		}
	})
}

// outstanding is how many confirmed messages no handler has finished.
func (l *ledger) outstanding() int64 { return l.confirmed.Load() - l.settledUp.Load() }

// each calls f for every record, when nobody writes any more.
func (l *ledger) each(f func(id string, r *record)) {
	for p := range l.shards {
		s := &l.shards[p]
		s.mu.Lock()
		for seq := range s.n {
			f(l.id(p, seq), &s.pages[seq/pageSize][seq%pageSize])
		}
		s.mu.Unlock()
	}
}

func (l *ledger) published() (n int) {
	for p := range l.shards {
		s := &l.shards[p]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}

// bytes is about how much memory the records take.
func (l *ledger) bytes() int64 {
	const size = 72
	return int64(l.published()+pageSize*len(l.shards)) * size
}

func (a Answer) String() string {
	return [...]string{"unanswered", "confirmed", "refused", "not sent", "uncertain"}[a]
}

func (a attempt) String() string {
	how := [...]string{"running", "accepted", "rejected", "handed back", "kept"}[a.ending]
	switch {
	case a.lost:
		how += ", settlement lost"
	case !a.settled:
		how += ", not settled"
	}
	return fmt.Sprintf("link %d, %v to %v: %s", a.link, a.start, a.end, how)
}
