package main

import (
	"fmt"
	"strings"
)

// contents is what a broker holds when a run is over.
type contents struct {
	queued, dead map[string]int // copies by message-id
	strangers    int            // messages that this run did not publish
}

// verdict is what the oracle makes of a ledger and of what the broker holds.
type verdict struct {
	published, confirmed, refused, notSent, uncertain int
	attempts, again                                   int // again: legitimate repetitions of a finished message
	queued, dead                                      int
	lost, phantom, duplicates                         int
	breaches                                          []string
}

// maxExamples is how many breaches of a run are written out.
const maxExamples = 8

func (v *verdict) breach(format string, args ...any) {
	if len(v.breaches) == maxExamples {
		v.breaches = append(v.breaches, "and more")
	}
	if len(v.breaches) < maxExamples {
		v.breaches = append(v.breaches, fmt.Sprintf(format, args...))
	}
}

// oracle judges every message. alive are the generations of links that ended
// by a clean stop: what was settled on one of them must have arrived.
type oracle struct {
	contents
	alive map[uint32]bool
}

func (o *oracle) judge(l *ledger) *verdict {
	v := &verdict{}
	l.each(func(id string, r *record) { o.record(v, id, r) })
	if n := l.strangers.Load(); n > 0 {
		v.breach("%d deliveries of messages that nobody published", n)
	}
	if n := l.corrupt.Load(); n > 0 {
		v.breach("%d deliveries whose body is not the one that was published", n)
	}
	if o.strangers > 0 {
		v.breach("%d messages in the queue that nobody published", o.strangers)
	}
	return v
}

func (o *oracle) record(v *verdict, id string, r *record) {
	v.published++
	o.answer(v, id, r)
	held := o.queued[id] + o.dead[id]
	v.queued += o.queued[id]
	v.dead += o.dead[id]
	if held > 1 {
		v.duplicates++
		v.breach("%s: %d copies at the broker", id, held)
	}
	ended := o.attempts(v, id, r)
	if r.answer == Confirmed && !ended && held == 0 {
		v.lost++
		v.breach("%s: lost: confirmed, nowhere, and never finished: %s", id, trail(r))
	}
	if r.n > 0 && !ended && held == 0 {
		v.phantom++
		v.breach("%s: phantom: gone from the broker, and no attempt ended so: %s", id, trail(r))
	}
}

func (o *oracle) answer(v *verdict, id string, r *record) {
	switch r.answer {
	case Confirmed:
		v.confirmed++
	case Refused:
		v.refused++
	case NotSent:
		v.notSent++
	case Uncertain:
		v.uncertain++
	case Unanswered:
	}
	if r.answers != 1 {
		v.breach("%s: %d answers", id, r.answers)
	}
	there := r.n > 0 || o.queued[id] > 0 || o.dead[id] > 0
	if there && (r.answer == NotSent || r.answer == Refused) {
		v.breach("%s: the publisher was told %q, and the broker had it", id, r.answer)
	}
}

// attempts judges the attempts of one message and says whether one finished it.
func (o *oracle) attempts(v *verdict, id string, r *record) (ended bool) {
	all := r.attempts()
	v.attempts += len(all)
	for i, a := range all {
		if a.ending == running {
			v.breach("%s: attempt %d has not ended", id, i+1)
		}
		finished := a.ending == accepts || a.ending == rejects
		ended = ended || finished
		if finished && a.settled && o.alive[a.link] && o.queued[id] > 0 {
			v.duplicates++
			v.breach("%s: settled on a link that ended cleanly, and still in the queue: %s", id, trail(r))
		}
		if i+1 == len(all) {
			break
		}
		if !mayFollow(a, all[i+1]) {
			v.duplicates++
			v.breach("%s: attempt %d came while the one before had it: %s", id, i+2, trail(r))
		} else if finished {
			v.again++
		}
	}
	return ended
}

// mayFollow says whether the peer may have delivered again: the first attempt
// was handed back before, or its link is gone.
func mayFollow(a, next attempt) bool {
	if next.link != a.link || a.lost {
		return true
	}
	return a.settled && a.ending == handsBack && a.end <= next.start
}

func trail(r *record) string {
	parts := []string{r.answer.String()}
	for _, a := range r.attempts() {
		parts = append(parts, a.String())
	}
	return strings.Join(parts, "; ")
}
