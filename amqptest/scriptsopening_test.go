package amqptest

import (
	"strings"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// openings break rules while the connection is opened.
var openings = []script{
	{ruleProtocolHeader, "garbage", func(r *raw) { r.bytes([]byte("GET / HTTP/1.1\r\n\r\n")) }},
	{ruleProtocolHeader, "another version", func(r *raw) { r.bytes([]byte("AMQP\x00\x00\x09\x01")) }},
	{ruleOpenFirst, "begin before open", func(r *raw) { r.header(wire.ProtoAMQP); r.send(&wire.Begin{}) }},
	{ruleSASL, "no sasl-init", func(r *raw) { r.header(wire.ProtoSASL); r.bytes(frameOf(wire.TypeSASL, 0, &wire.SASLOutcome{}, nil)) }},
	{ruleFrame, "an AMQP frame", func(r *raw) { r.header(wire.ProtoSASL); r.send(&wire.Begin{}) }},
	{ruleValue, "a sasl-init that is not ASCII", func(r *raw) {
		r.header(wire.ProtoSASL)
		r.bytes(frameOf(wire.TypeSASL, 0, &wire.SASLInit{Mechanism: "\xff"}, nil))
	}},
	{ruleSASL, "a mechanism that was not offered", func(r *raw) {
		r.header(wire.ProtoSASL)
		r.bytes(frameOf(wire.TypeSASL, 0, &wire.SASLInit{Mechanism: "EXTERNAL"}, nil))
	}},
	{ruleFrameSize, "a large sasl-init", func(r *raw) { r.header(wire.ProtoSASL); r.bytes(plain("a", strings.Repeat("b", 512))) }},
	{ruleFrameSize, "a large open", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.send(&wire.Open{ContainerID: strings.Repeat("c", 512), MaxFrameSize: 65536})
	}},
	{ruleChannelMax, "a heartbeat on channel 1 before open", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.bytes([]byte{0, 0, 0, 8, 2, 0, 0, 1})
	}},
	{ruleFields, "open properties", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512, Properties: oddMap})
	}},
	{ruleChannelMax, "more sessions than its own channel-max", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512}, &wire.Begin{})
		r.bytes(frameOf(wire.TypeAMQP, 1, &wire.Begin{}, nil))
	}},
	{ruleHandleMax, "more links than its own handle-max", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512}, &wire.Begin{IncomingWindow: 1}, attachSender(0), attachReceiver(1))
	}},
	{ruleProtocolHeader, "a second SASL layer", func(r *raw) { r.header(wire.ProtoSASL); r.bytes(plain("a", "b")); r.header(wire.ProtoSASL) }},
	{ruleOpen, "a tiny max-frame-size", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 511})
	}},
	{ruleChannel, "open on channel 1", func(r *raw) {
		r.header(wire.ProtoAMQP)
		r.bytes(frameOf(wire.TypeAMQP, 1, &wire.Open{ContainerID: "raw", MaxFrameSize: 512}, nil))
	}},
}
