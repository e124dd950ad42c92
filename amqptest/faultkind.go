package amqptest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

type faultKind uint8

const (
	faultNone faultKind = iota
	faultRefuseTCP
	faultRefuseSASL
	faultHangUpSASL
	faultRefuseOpen
	faultRefuseBegin
	faultRefuseAttach
	faultAnswer
	faultDropDisposition
	faultIgnoreDisposition
	faultIgnoreDrain
	faultIgnoreDetach
	faultIgnoreEnd
	faultIgnoreClose
	faultWithholdCredit
	faultWithholdWindow
	faultDuplicate
	faultReorder

	// From here on they act on what exists.
	faultOverSend
	faultTakeBack
	faultDetach
	faultSuspend
	faultEnd
	faultClose
	faultDrop
	faultWriteBytes
	faultSilence
	faultMute
	faultDeaf
	faultStopReading
	faultDrip

	faultTogether
	faultSequence
)

// acts says whether a fault of this kind happens to what exists, rather than
// to something that a client does.
func (k faultKind) acts() bool { return k >= faultOverSend && k < faultTogether }

// trait is what goes with a kind of fault.
type trait struct {
	name      string
	depth     depth // the deepest aim that can be decided when it happens
	addressed bool  // needs an address
	delays    bool  // Delay goes with it
	lasts     bool  // For goes with it
}

var traits = [...]trait{
	faultRefuseTCP:         {name: "refuse TCP", depth: depthConnection},
	faultRefuseSASL:        {name: "refuse SASL", depth: depthConnection, delays: true},
	faultHangUpSASL:        {name: "hang up after sasl-init", depth: depthConnection, delays: true},
	faultRefuseOpen:        {name: "refuse open", depth: depthContainer, delays: true},
	faultRefuseBegin:       {name: "refuse begin", depth: depthSession, delays: true},
	faultRefuseAttach:      {name: "refuse attach", depth: depthLink, delays: true, addressed: true},
	faultAnswer:            {name: "answer", depth: depthLink, delays: true, addressed: true},
	faultDropDisposition:   {name: "drop disposition", depth: depthLink, addressed: true},
	faultIgnoreDisposition: {name: "ignore disposition", depth: depthLink, addressed: true},
	faultIgnoreDrain:       {name: "ignore drain", depth: depthLink, addressed: true},
	faultIgnoreDetach:      {name: "ignore detach", depth: depthLink, addressed: true},
	faultIgnoreEnd:         {name: "ignore end", depth: depthSession},
	faultIgnoreClose:       {name: "ignore close", depth: depthContainer},
	faultWithholdCredit:    {name: "withhold credit", depth: depthLink, lasts: true, addressed: true},
	faultWithholdWindow:    {name: "withhold window", depth: depthSession, lasts: true},
	faultDuplicate:         {name: "duplicate", depth: depthLink, addressed: true},
	faultReorder:           {name: "reorder", depth: depthLink, addressed: true},
	faultOverSend:          {name: "over-send", depth: depthLink, delays: true, addressed: true},
	faultTakeBack:          {name: "take back", depth: depthLink, delays: true, addressed: true},
	faultDetach:            {name: "detach", depth: depthLink, delays: true, addressed: true},
	faultSuspend:           {name: "suspend", depth: depthLink, delays: true, addressed: true},
	faultEnd:               {name: "end", depth: depthLink, delays: true},
	faultClose:             {name: "close", depth: depthLink, delays: true},
	faultDrop:              {name: "drop", depth: depthLink, delays: true},
	faultWriteBytes:        {name: "write", depth: depthLink, delays: true},
	faultSilence:           {name: "silence", depth: depthLink, delays: true, lasts: true},
	faultMute:              {name: "mute", depth: depthLink, delays: true, lasts: true},
	faultDeaf:              {name: "deaf", depth: depthLink, delays: true, lasts: true},
	faultStopReading:       {name: "stop reading", depth: depthLink, delays: true, lasts: true},
	faultDrip:              {name: "drip", depth: depthLink, delays: true, lasts: true},
	faultTogether:          {name: "together"},
	faultSequence:          {name: "sequence"},
}

// activate checks f and makes it ready to be set going.
func (s *Server) activate(f *Fault) (*activeFault, error) {
	a := &activeFault{Fault: *f, left: f.times}
	switch {
	case f.kind == faultNone:
		return nil, errors.New("a zero Fault")
	case f.problem != "":
		return nil, errors.New(f.problem)
	case f.kind >= faultTogether:
		return a, s.activateParts(a)
	}
	if f.addr != "" || traits[f.kind].addressed {
		var err error
		if a.aim.node, _, err = s.nameOf(f.addr); err != nil {
			return nil, err
		}
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if n := f.aim.conn; n > 0 && s.past(n, f.kind) {
		return nil, fmt.Errorf("connection %d has gone by", n)
	}
	if f.diced {
		a.dice = rand.New(rand.NewPCG(f.seed, 0)) //nolint:gosec // to be repeatable is the point
		if f.kind.acts() && f.count == countEvents && f.after == 0 {
			a.after = 1
		}
	}
	if f.cond != "" {
		a.error = refusal(f.cond, f.text)
	}
	var err error
	if f.kind == faultAnswer || f.kind == faultTakeBack {
		a.state, err = stateOf(f.outcome, f.reason)
	}
	return a, err
}

// past says whether nothing of that kind can happen to the n-th connection any
// more.
func (s *Server) past(n int, kind faultKind) bool {
	if uint64(n) > s.connected {
		return false
	}
	for c := range s.conns {
		if c.number+1 == uint64(n) {
			return kind == faultRefuseTCP
		}
	}
	return true
}

// check fails for a fault that can never happen.
func (f *Fault) check() error {
	t := &traits[f.kind]
	deep := f.aim.depth()
	switch {
	case deep > t.depth && deep == depthLink && f.aim.link == "":
		return errors.New("it cannot be aimed at an address")
	case deep > t.depth && deep == depthLink:
		return errors.New("it cannot be aimed at a link")
	case deep > t.depth && deep == depthSession:
		return errors.New("it cannot be aimed at a session")
	case deep > t.depth:
		return errors.New("it cannot be aimed at a container-id, which is not known yet")
	case f.delay > 0 && !t.delays:
		return errors.New("it cannot be delayed")
	case f.lasts > 0 && !t.lasts:
		return errors.New("it has no duration")
	case f.kind == faultRefuseTCP && f.count != countEvents:
		return errors.New("no frame or byte comes before it")
	case f.diced && f.kind.acts() && f.count != countEvents && f.after == 0:
		return errors.New("a chance needs something to count")
	case f.text != "" && f.cond == "":
		return fmt.Errorf("a description %q without a condition", f.text)
	}
	return f.checkContent()
}

func (f *Fault) checkContent() error {
	switch f.kind {
	case faultRefuseSASL:
		if f.code == wire.SASLOK || f.code > wire.SASLSysTemp {
			return fmt.Errorf("sasl code %d refuses nothing: 1 to %d do", f.code, wire.SASLSysTemp)
		}
	case faultTakeBack:
		if f.outcome != amqpflow.Released && f.outcome != amqpflow.Modified {
			return fmt.Errorf("outcome %v does not give a message back", f.outcome)
		}
	case faultWriteBytes:
		if f.data == "" {
			return errors.New("no bytes")
		}
	case faultDrip:
		if f.size < 1 || f.every <= 0 {
			return fmt.Errorf("%d bytes every %v", f.size, f.every)
		}
	}
	return nil
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
