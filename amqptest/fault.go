package amqptest

import (
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// Fault is something that goes wrong on purpose: made by RefuseAttach,
// Answer, Detach or Drop, set going by Server.Fault. It happens once, at the
// first opportunity, unless Times and After say otherwise. A Fault is a value:
// the same one can be used again.
type Fault struct {
	kind    faultKind
	addr    amqpflow.Address
	cond    amqp.ErrCond
	text    string
	outcome amqpflow.Outcome
	reason  *amqp.Error
	times   int
	after   int
}

type faultKind uint8

const (
	faultNone faultKind = iota
	faultRefuseAttach
	faultAnswer
	faultDetach
	faultDrop
)

// RefuseAttach refuses an attach to addr, in either direction, with a
// condition and a description: the answer has no terminus, and a closing
// detach follows. After counts attaches to addr that are let through.
//
// Spec: 2.6.3.
func RefuseAttach(addr amqpflow.Address, cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultRefuseAttach, addr: addr, cond: cond, text: description, times: 1}
}

// Answer answers a message that a client publishes to addr with an outcome.
// reason goes with Rejected and may be nil; Modified says
// delivery-failed; OutcomeNone settles without a state. Unless the outcome is
// Accepted the message is dropped. After counts messages that are
// stored and accepted as ever. Messages sent settled are not counted: nothing
// answers them.
//
// Spec: 3.4.
func Answer(addr amqpflow.Address, outcome amqpflow.Outcome, reason *amqp.Error) Fault {
	return Fault{kind: faultAnswer, addr: addr, outcome: outcome, reason: reason, times: 1}
}

// Detach closes every link of addr with a condition and a description. It
// waits until there is one; After counts deliveries that went over the links
// of addr, in either direction. What consumers had not settled goes back to
// the queue, its delivery-count unchanged.
//
// Spec: 2.6.5.
func Detach(addr amqpflow.Address, cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultDetach, addr: addr, cond: cond, text: description, times: 1}
}

// Drop cuts every open connection without a word; what was still to be
// written is lost. It waits until there is one; After counts deliveries that
// went over the links of the server, in either direction.
func Drop() Fault {
	return Fault{kind: faultDrop, times: 1}
}

// Times makes f happen n times, at least 1.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// After makes f wait for n events, counted from Server.Fault, or from the
// last time that it happened: attaches for RefuseAttach, published messages
// for Answer, deliveries for Detach and Drop.
func (f Fault) After(n int) Fault {
	f.after = n
	return f
}

// activeFault is a Fault that has been set going.
type activeFault struct {
	Fault
	node  string
	error *wire.Error
	state wire.State
	seen  int // events since it was set going or has last happened
}

// Fault sets f going. It returns an error if f is a zero Fault, its address
// cannot be parsed, Times is below 1 or After below 0; ErrClosed after
// Close; and a bad option of the server.
func (s *Server) Fault(f Fault) error {
	if err := s.usable(); err != nil {
		return err
	}
	active, err := f.activate(s)
	if err != nil {
		return fmt.Errorf("amqptest: fault: %w", err)
	}
	s.lock()
	defer s.unlock()
	s.faults = append(s.faults, active)
	return nil
}

func (f Fault) activate(s *Server) (*activeFault, error) {
	a := &activeFault{Fault: f}
	switch {
	case f.kind == faultNone:
		return nil, errors.New("a zero Fault")
	case f.times < 1:
		return nil, fmt.Errorf("times %d is below 1", f.times)
	case f.after < 0:
		return nil, fmt.Errorf("after %d is below 0", f.after)
	}
	var err error
	if f.kind != faultDrop {
		if a.node, _, err = s.nameOf(f.addr); err != nil {
			return nil, err
		}
	}
	if f.kind == faultAnswer {
		a.state, err = stateOf(f.outcome, f.reason)
		return a, err
	}
	if f.cond != "" {
		a.error = refusal(f.cond, f.text)
	}
	return a, nil
}

func stateOf(outcome amqpflow.Outcome, reason *amqp.Error) (wire.State, error) {
	switch outcome {
	case amqpflow.OutcomeNone:
		return wire.State{}, nil
	case amqpflow.Accepted:
		return wire.State{Kind: wire.StateAccepted}, nil
	case amqpflow.Released:
		return wire.State{Kind: wire.StateReleased}, nil
	case amqpflow.Modified:
		return wire.State{Kind: wire.StateModified, DeliveryFailed: true}, nil
	case amqpflow.Rejected:
		e, err := errorOf(reason)
		return wire.State{Kind: wire.StateRejected, Error: e}, err
	default:
		return wire.State{}, fmt.Errorf("outcome %d does not exist", outcome)
	}
}

// happens counts an event and says whether the fault is due for it.
func (f *activeFault) happens() bool {
	if f.times == 0 {
		return false
	}
	f.seen++
	if f.seen <= f.after {
		return false
	}
	f.happened()
	return true
}

func (f *activeFault) happened() {
	f.seen = 0
	f.times--
}

// refusal is why the next attach to node is refused; nil if it is not.
func (s *Server) refusal(node string) *wire.Error {
	for _, f := range s.faults {
		if f.kind == faultRefuseAttach && f.node == node && f.happens() {
			if f.error == nil {
				return &wire.Error{Condition: wire.Symbol(amqp.ErrCondInternalError)}
			}
			return f.error
		}
	}
	return nil
}

// answer is what the next message published to node is answered with.
func (s *Server) answer(node string, otherwise wire.State) wire.State {
	for _, f := range s.faults {
		if f.kind == faultAnswer && f.node == node && f.happens() {
			return f.state
		}
	}
	return otherwise
}

// countTransfer counts a delivery over a link of node.
func (s *Server) countTransfer(node string) {
	if len(s.faults) == 0 {
		return
	}
	for _, f := range s.faults {
		if f.kind == faultDrop || f.kind == faultDetach && f.node == node {
			f.seen++
		}
	}
	s.fireFaults()
}

// fireFaults lets the detaches and cuts happen that are due, and forgets the
// faults that have happened as often as they should.
func (s *Server) fireFaults() {
	if len(s.faults) == 0 {
		return
	}
	left := s.faults[:0]
	for _, f := range s.faults {
		due := f.times > 0 && f.seen >= f.after
		if due && (f.kind == faultDetach && s.detachAll(f) || f.kind == faultDrop && s.dropAll()) {
			s.log.Debug("fault", "address", f.node, "error", wireError(f.error))
			f.happened()
		}
		if f.times > 0 {
			left = append(left, f)
		}
	}
	clear(s.faults[len(left):])
	s.faults = left
}

// detachAll closes the links of f's node and says whether there were any.
func (s *Server) detachAll(f *activeFault) bool {
	n := s.nodes[f.node]
	if n == nil || len(n.links) == 0 {
		return false
	}
	for len(n.links) > 0 {
		n.links[0].detach(f.error)
	}
	return true
}

// dropAll cuts the open connections and says whether there were any.
func (s *Server) dropAll() bool {
	dropped := false
	for c := range s.conns {
		if c.phase == phaseRunning && !c.dead {
			c.drop()
			dropped = true
		}
	}
	return dropped
}
