package amqptest

import (
	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// capabilityRelay is offered because a target without an address is taken:
// each message says in its properties where it goes.
const capabilityRelay wire.Symbol = "ANONYMOUS-RELAY"

// destination returns the node that a message of l goes to; nil, and what the
// publisher is answered, if there is none. sections are the message's.
func (l *link) destination(m *message, sections *wire.Sections) (*node, wire.State) {
	if l.node.kind != kindAnonymous {
		return l.node, stateAccepted
	}
	s := l.ses.conn.srv
	to := ""
	if m.format == 0 {
		to = textProperty(sections, wire.PropTo)
	}
	if to == "" {
		return nil, s.dialect.noAddress
	}
	return s.dialect.relay(s, to)
}

// textProperty is a string among the message's properties, "" if it is absent.
func textProperty(sections *wire.Sections, index int) string {
	value, _ := wire.LookupProperty(sections.Properties, index)
	text, _ := wire.RawBytes(value)
	return string(text)
}

func rejected(cond amqp.ErrCond, description string) wire.State {
	return wire.State{Kind: wire.StateRejected, Error: refusal(cond, description)}
}
