package amqpflow

import (
	"slices"
	"sync"
)

// waits is who waits for whom: handlers for the stops that they have called, and
// stops for the handlers that run. A stop does not wait for a handler that waits
// for it, be it by way of other stops and their handlers: both would hang.
type waits struct {
	mu    sync.Mutex
	calls map[*worker][]*stop // in which a handler is
	stops map[*stop][]*worker // for whose handlers a stop waits
}

func newWaits() waits { return waits{calls: map[*worker][]*stop{}, stops: map[*stop][]*worker{}} }

// enter notes that w's handler waits for st, and has those look who wait for it.
func (ws *waits) enter(w *worker, st *stop) {
	ws.mu.Lock()
	ws.calls[w] = append(ws.calls[w], st)
	ws.mu.Unlock()
	w.mu.Lock()
	w.tellLocked()
	w.mu.Unlock()
}

// leave takes enter back.
func (ws *waits) leave(w *worker, st *stop) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	drop(ws.calls, w, st)
}

// mayAwait notes that st waits for w's handler, unless that waits for st.
// Whoever closes a circle finds it: a handler that enters a stop wakes those who
// wait for it, and they ask again.
func (ws *waits) mayAwait(st *stop, w *worker) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	drop(ws.stops, st, w)
	if ws.leadsLocked(w, st, map[*stop]bool{}) {
		return false
	}
	ws.stops[st] = append(ws.stops[st], w)
	return true
}

// awaited takes mayAwait back.
func (ws *waits) awaited(st *stop, w *worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	drop(ws.stops, st, w)
}

// leadsLocked reports whether w's handler waits for st. Those that seen holds
// were followed already.
func (ws *waits) leadsLocked(w *worker, st *stop, seen map[*stop]bool) bool {
	for _, called := range ws.calls[w] {
		if called == st {
			return true
		}
		if seen[called] {
			continue
		}
		seen[called] = true
		for _, next := range ws.stops[called] {
			if ws.leadsLocked(next, st, seen) {
				return true
			}
		}
	}
	return false
}

// drop removes one of a key's values, and the key with its last.
func drop[K, V comparable](m map[K][]V, key K, value V) {
	all := m[key]
	i := slices.Index(all, value)
	if i < 0 {
		return
	}
	if m[key] = slices.Delete(all, i, i+1); len(all) == 1 {
		delete(m, key)
	}
}
