package amqpflow

import (
	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/dataplane"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// refusal is a delivery that no handler may see, to be told of.
type refusal struct {
	cond  amqp.ErrCond
	cause error
	lost  error // why it could not be rejected
}

// refuse rejects a delivery that no handler may see. The lock is held, so it is
// told of later.
func (r *receiving) refuse(in *dataplane.Delivery, cond amqp.ErrCond, cause error) {
	err := r.link.Settle(in.ID, &wire.State{Kind: wire.StateRejected, Error: &wire.Error{
		Condition: wire.Symbol(cond), Description: clip(cause.Error()),
	}})
	r.refused = append(r.refused, refusal{cond: cond, cause: cause, lost: err})
	if err != nil {
		return
	}
	r.s.counts.refused.Add(1)
	r.s.outcomes[Rejected].Add(1)
	r.grant(false)
}

// tell tells of what was refused. Meanwhile it does what run would: Observer.Error
// may call Pause or Close, which wait for that.
func (r *receiving) tell(refused []refusal) {
	for len(refused) > 0 {
		all := refused // so that nothing is allocated where nothing was refused
		told := r.s.c.telling(r.s.life, func() { r.report(all) })
		var late []refusal
		for waiting := true; waiting; {
			select {
			case done := <-r.swept:
				_, more := r.gather()
				late = append(late, more...)
				close(done)
			case <-told:
				waiting = false
			}
		}
		refused = late
	}
}

func (r *receiving) report(refused []refusal) {
	s := r.s
	for _, f := range refused {
		s.c.log.Warn("delivery rejected", logAddress, string(s.addr), logLink, r.name,
			logOutcome, Rejected.String(), logCondition, string(f.cond), logError, f.cause)
		s.c.observe.error(f.cause)
		if f.lost != nil {
			s.lostSettlement(Rejected, f.lost)
		}
	}
}
