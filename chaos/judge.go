package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// judge reads what is left at the broker and holds the run against the
// invariants.
func (t *trial) judge(ctx context.Context, left *residue, heap *heapWatch, unsettled int) *result {
	o := &oracle{contents: newContents(), alive: t.alive()}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for q := range t.load.Queues {
		if err := t.collectLeft(reading, o, t.queue(q)); err != nil {
			t.breach("read what is left: %v", err)
		}
	}
	v := o.judge(t.ledger)
	t.phantoms(v)
	r := &result{
		scenario: t.scenario, peer: t.peer.product(), seed: t.seed, runs: 1,
		unsettled: unsettled, heap: heap.most(), took: time.Since(t.began),
	}
	var times int
	r.worst, times = t.recovery.result()
	r.recoveries = int64(times)
	if t.load.Expect != nil {
		t.load.Expect(v, t)
	}
	if bound := t.load.Subscribe.Credit; unsettled > bound {
		t.breach("%d deliveries unsettled at the broker, the credit is %d", unsettled, bound)
	}
	if r.worst > t.load.Recovery {
		t.breach("the first message after a recovery took %v", r.worst)
	}
	if s := heap.breach(t.load.HeapBound); s != "" {
		t.breach("%s", s)
	}
	r.faults = t.faults.Load()
	r.verdict = *v
	r.breaches = slices.Concat(v.breaches, t.bad, t.prompt.breaches(), left.breaches(ctx))
	if len(r.breaches) > 0 {
		r.breaches = append(r.breaches, t.heard()...)
	}
	return r
}

// alive are the generations that ended by the clean stop of the run.
func (t *trial) alive() map[uint32]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	alive := map[uint32]bool{}
	for _, s := range t.subs {
		if !s.unclean {
			alive[s.link.Load()] = true
		}
	}
	return alive
}

func (t *trial) collectLeft(ctx context.Context, o *oracle, queue string) error {
	c, err := t.peer.contents(ctx, queue, t.ledger)
	if err != nil {
		return err
	}
	maps.Copy(o.queued, c.queued)
	maps.Copy(o.dead, c.dead)
	o.strangers += c.strangers
	return t.peer.remove(ctx, queue)
}

// phantoms are messages that the broker saw accepted more often than handlers
// accepted them.
func (t *trial) phantoms(v *verdict) {
	for q := range t.load.Queues {
		for id, n := range t.peer.settlements(t.queue(q)) {
			publisher, seq, ok := t.ledger.parse(id)
			if !ok {
				continue
			}
			accepted := 0
			t.ledger.with(publisher, seq, func(r *record) {
				for _, a := range r.attempts() {
					if a.ending == accepts {
						accepted++
					}
				}
			})
			if n > accepted {
				v.phantom++
				v.breach("%s: accepted %d times at the broker, %d times by a handler", id, n, accepted)
			}
		}
	}
}

// heard are the errors that a failed run came across.
func (t *trial) heard() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, text := range slices.Sorted(maps.Keys(t.noted)) {
		all = append(all, fmt.Sprintf("(heard %d times) %s", t.noted[text], clip(text, 300)))
	}
	return all
}
