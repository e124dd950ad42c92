package amqpflow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Receipt stands for the outcome of one Send. It may be waited for any number
// of times, from any goroutine, also after Shutdown.
type Receipt struct {
	link    *sendingLink
	plane   *dataplane.Receipt
	epoch   *epoch
	started time.Duration // since the start of the process; 0 where nobody asks
}

// Done is closed, once, when the outcome is known, or known to stay unknown.
func (r *Receipt) Done() <-chan struct{} { return r.plane.Done() }

// Wait waits for the outcome and returns what Publish would: nil, a
// *PublishError, or ErrUncertain. When ctx ends first it returns ErrUncertain
// with ctx's error, for this wait only: a later one gets the answer.
func (r *Receipt) Wait(ctx context.Context) error {
	if err := await(ctx, r.link.s.addr, r.plane); err != nil {
		return err
	}
	_, err := outcomeOf(r.link.s.addr, r.plane)
	return err
}

// owner is a Receipt as the data plane knows it.
type owner Receipt

// Resolved is called by the data plane, once, when the outcome is known.
func (o *owner) Resolved(plane *dataplane.Receipt) {
	r := (*Receipt)(o)
	p := r.link.s.p
	p.unsettled.resolved(r.epoch)
	r.link.resolved(r, plane)
	p.active.Done()
}

// await waits for the peer's disposition.
func await(ctx context.Context, addr Address, plane *dataplane.Receipt) error {
	done := plane.Done()
	if isClosed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("amqpflow: publish to %q: %w: %w", addr, ErrUncertain, ctx.Err())
	}
}

// outcomeOf is the answer of a receipt whose outcome is known.
//
// Spec: 3.4.
func outcomeOf(addr Address, plane *dataplane.Receipt) (Outcome, error) {
	if err := plane.Err(); err != nil {
		return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w", addr, goError(err))
	}
	state := plane.Outcome()
	switch state.Kind {
	case wire.StateAccepted:
		return Accepted, nil
	case wire.StateReleased:
		return Released, &PublishError{Address: addr, Outcome: Released}
	case wire.StateModified:
		return Modified, &PublishError{Address: addr, Outcome: Modified, Info: modifiedInfo(&state)}
	case wire.StateRejected:
		refused := &PublishError{Address: addr, Outcome: Rejected}
		if state.Error != nil {
			remote := amqpError(state.Error)
			refused.Condition, refused.Description, refused.Info = remote.Condition, remote.Description, remote.Info
		}
		return Rejected, refused
	default:
		return OutcomeNone, fmt.Errorf("amqpflow: publish to %q: %w: unknown outcome", addr, ErrUncertain)
	}
}

// modifiedInfo gives the fields of a modified outcome by the standard's names.
func modifiedInfo(state *wire.State) map[string]any {
	info := map[string]any{
		"delivery-failed":    state.DeliveryFailed,
		"undeliverable-here": state.UndeliverableHere,
	}
	if len(state.Annotations) > 0 {
		info["message-annotations"] = toGoMap(state.Annotations)
	}
	return info
}

// epochs counts the Sends whose outcome is not known, by the Flush that they
// come before.
type epochs struct {
	mu     sync.Mutex
	now    *epoch
	sealed []*epoch
}

type epoch struct {
	pending int
	sealed  bool
	done    chan struct{} // closed when it is sealed and nothing is pending
}

func (es *epochs) init() { es.now = &epoch{done: make(chan struct{})} }

func (es *epochs) begin() *epoch {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.now.pending++
	return es.now
}

func (es *epochs) resolved(e *epoch) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if e.pending--; e.pending > 0 || !e.sealed {
		return
	}
	close(e.done)
	es.sealed = slices.DeleteFunc(es.sealed, func(other *epoch) bool { return other == e })
}

// wait seals the current epoch and waits for it and those before it.
func (es *epochs) wait(ctx context.Context) error {
	es.mu.Lock()
	if es.now.pending > 0 {
		es.now.sealed = true
		es.sealed = append(es.sealed, es.now)
		es.init()
	}
	before := slices.Clone(es.sealed)
	es.mu.Unlock()
	for _, e := range before {
		select {
		case <-e.done:
		case <-ctx.Done():
			return fmt.Errorf("amqpflow: flush: %w", ctx.Err())
		}
	}
	return nil
}
