package dataplane

import (
	"math"
	"slices"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// What go-amqp reads is not what the peer wrote but the least that go-amqp needs of
// it, written anew: it decodes, and nothing in it can disturb go-amqp.

// encode makes a frame of one performative.
func encode(typ byte, channel uint16, performative func([]byte) []byte) []byte {
	b := wire.BeginFrame(nil, typ, channel)
	b = performative(b)
	wire.EndFrame(b, 0)
	return b
}

func encodeAMQP(channel uint16, performative func([]byte) []byte) []byte {
	return encode(wire.TypeAMQP, channel, performative)
}

// reencodeOpen leaves off what the root reads from Peer, and the frame size: a
// frame over it would make go-amqp kill the connection, so the limit is kept in
// Write.
func reencodeOpen(o *wire.Open) []byte {
	p := wire.Open{
		ContainerID:  o.ContainerID,
		MaxFrameSize: math.MaxUint32,
		ChannelMax:   o.ChannelMax,
		IdleTimeout:  o.IdleTimeout,
	}
	return encodeAMQP(0, p.Append)
}

func reencodeBegin(channel uint16, b *wire.Begin) []byte {
	p := wire.Begin{
		RemoteChannel:  b.RemoteChannel,
		NextOutgoingID: b.NextOutgoingID,
		IncomingWindow: b.IncomingWindow,
		OutgoingWindow: b.OutgoingWindow,
		HandleMax:      b.HandleMax,
	}
	return encodeAMQP(channel, p.Append)
}

func reencodeAttach(channel uint16, a *wire.Attach) []byte {
	p := wire.Attach{
		Name:                 a.Name,
		Handle:               a.Handle,
		Role:                 a.Role,
		SndSettleMode:        a.SndSettleMode,
		RcvSettleMode:        a.RcvSettleMode,
		InitialDeliveryCount: a.InitialDeliveryCount,
		MaxMessageSize:       a.MaxMessageSize,
	}
	if s := a.Source; s != nil {
		p.Source = &wire.Source{Address: s.Address, HasAddress: s.HasAddress, Dynamic: s.Dynamic}
		if plainFilter(s.Filter) {
			p.Source.Filter = s.Filter
		}
	}
	switch {
	case a.Target != nil:
		p.Target = &wire.Target{Address: a.Target.Address, HasAddress: a.Target.HasAddress, Dynamic: a.Target.Dynamic}
	case a.Coordinator != nil:
		p.Target = new(wire.Target)
	}
	return encodeAMQP(channel, p.Append)
}

// maxPlain is how many filters or mechanisms go on to go-amqp.
const maxPlain = 64

// plainMechanisms leaves out empty names, which go-amqp's array decoder miscounts.
func plainMechanisms(m []wire.Symbol) []wire.Symbol {
	m = slices.DeleteFunc(m, func(s wire.Symbol) bool { return s == "" })
	return m[:min(len(m), maxPlain)]
}

// plainFilter reports whether go-amqp can decode m as a filter set: described
// scalars under names.
func plainFilter(m wire.Map) bool {
	for _, e := range m {
		if _, ok := e.Key.(wire.Symbol); !ok {
			return false
		}
		d, ok := e.Value.(wire.Described)
		if !ok {
			return false
		}
		switch d.Descriptor.(type) {
		case wire.Symbol, uint64:
		default:
			return false
		}
		switch d.Value.(type) {
		case string, wire.Symbol, bool, uint32, uint64, int32, int64:
		default:
			return false
		}
	}
	return len(m) > 0 && len(m) <= maxPlain
}

// reencodeDetach makes every detach a closing one: go-amqp answers the other kind
// with an error of its own.
func reencodeDetach(channel uint16, d *wire.Detach) []byte {
	p := wire.Detach{Handle: d.Handle, Closed: true, Error: plainError(d.Error)}
	return encodeAMQP(channel, p.Append)
}

func reencodeEnd(channel uint16, e *wire.End) []byte {
	p := wire.End{Error: plainError(e.Error)}
	return encodeAMQP(channel, p.Append)
}

func reencodeClose(c *wire.Close) []byte {
	p := wire.Close{Error: plainError(c.Error)}
	return encodeAMQP(0, p.Append)
}

func closeFrame() []byte { return reencodeClose(new(wire.Close)) }

// plainError leaves off the info map, which may hold what go-amqp cannot decode.
func plainError(e *wire.Error) *wire.Error {
	if e == nil {
		return nil
	}
	return &wire.Error{Condition: e.Condition, Description: e.Description}
}
