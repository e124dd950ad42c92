package amqptest

import (
	"fmt"
	"strings"

	"github.com/amqpflow/amqpflow"
)

// String says what f does, when, how often and to whom:
//
//	detach "orders" with amqp:link:detach-forced "maintenance", after 3, 2 times
func (f Fault) String() string {
	if f.kind >= faultTogether {
		parts := make([]string, len(f.parts))
		for i, part := range f.parts {
			parts[i] = part.String()
		}
		return traits[f.kind].name + " (" + strings.Join(parts, "; ") + ")" + f.often()
	}
	if f.kind == faultNone {
		return "no fault"
	}
	return traits[f.kind].name + f.what() + f.when() + f.often() + f.whom()
}

func (f *Fault) what() string {
	var b strings.Builder
	if f.addr != "" && traits[f.kind].addressed {
		fmt.Fprintf(&b, " %q", f.addr)
	}
	switch f.kind {
	case faultRefuseSASL:
		fmt.Fprintf(&b, " with code %d", f.code)
	case faultWriteBytes:
		fmt.Fprintf(&b, " %d bytes", len(f.data))
	case faultDrip:
		fmt.Fprintf(&b, " %d bytes every %v", f.size, f.every)
	case faultAnswer, faultTakeBack:
		if f.outcome == amqpflow.OutcomeNone {
			b.WriteString(" with no state")
		} else {
			fmt.Fprintf(&b, " with %v", f.outcome)
		}
		if f.reason != nil {
			fmt.Fprintf(&b, " for %s %q", f.reason.Condition, f.reason.Description)
		}
	}
	if f.cond != "" {
		fmt.Fprintf(&b, " with %s", f.cond)
	}
	if f.text != "" {
		fmt.Fprintf(&b, " %q", f.text)
	}
	return b.String()
}

func (f *Fault) when() string {
	var b strings.Builder
	switch {
	case f.count == countFrames:
		fmt.Fprintf(&b, ", after %d frames", f.after)
	case f.count == countBytes:
		fmt.Fprintf(&b, ", after %d bytes", f.after)
	case f.after > 0:
		fmt.Fprintf(&b, ", after %d", f.after)
	}
	if f.delay > 0 {
		fmt.Fprintf(&b, ", %v later", f.delay)
	}
	if f.lasts > 0 {
		fmt.Fprintf(&b, ", for %v", f.lasts)
	}
	return b.String()
}

func (f *Fault) often() string {
	var b strings.Builder
	if f.diced {
		fmt.Fprintf(&b, ", with chance %v (seed %d)", f.chance, f.seed)
	}
	switch f.times {
	case 1:
	case forever:
		b.WriteString(", always")
	default:
		fmt.Fprintf(&b, ", %d times", f.times)
	}
	return b.String()
}

func (f *Fault) whom() string {
	var b strings.Builder
	if f.aim.conn > 0 {
		fmt.Fprintf(&b, ", on connection %d", f.aim.conn)
	}
	if f.aim.container != "" {
		fmt.Fprintf(&b, ", on container %q", f.aim.container)
	}
	if f.aim.session.Set {
		fmt.Fprintf(&b, ", on session %d", f.aim.session.Value)
	}
	if f.aim.link != "" {
		fmt.Fprintf(&b, ", on link %q", f.aim.link)
	}
	if f.addr != "" && !traits[f.kind].addressed {
		fmt.Fprintf(&b, ", on address %q", f.addr)
	}
	return b.String()
}
