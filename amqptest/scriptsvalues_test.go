package amqptest

import (
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// attaches sends a receiver's attach with one change.
func attaches(rule rule, does string, change func(a *wire.Attach)) script {
	return script{rule, does, func(r *raw) {
		a := attachReceiver(0)
		change(a)
		r.send(a)
	}}
}

// publishes sends a message.
func publishes(rule rule, does string, payload []byte) script {
	return script{rule, does, func(r *raw) { r.sending().transfer(first(0), payload) }}
}

// settles answers a delivery.
func settles(rule rule, does string, change func(d *wire.Disposition)) script {
	return script{rule, does, func(r *raw) {
		r.receiving(1)
		r.awaitTransfer()
		d := &wire.Disposition{Role: wire.RoleReceiver, Settled: true}
		change(d)
		r.send(d)
	}}
}

var errOdd = &wire.Error{Condition: "amqp:internal-error", Info: wire.Map{{Key: int8(1), Value: true}}}

// valueScripts break rules of what stands in a frame.
var valueScripts = []script{
	{ruleValue, "a description that is not UTF-8", func(r *raw) {
		r.send(&wire.End{Error: &wire.Error{Condition: "amqp:internal-error", Description: "\xff"}})
	}},
	attaches(ruleValue, "a property twice", func(a *wire.Attach) {
		a.Properties = wire.Map{{Key: wire.Symbol("a"), Value: true}, {Key: wire.Symbol("a"), Value: true}}
	}),
	{ruleValue, "a transfer's state that is not UTF-8", func(r *raw) {
		t := first(0)
		t.State = wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "\xff"}}
		r.sending().transfer(t, hello)
	}},
	attaches(ruleFields, "attach properties", func(a *wire.Attach) { a.Properties = oddMap }),
	{ruleFields, "begin properties", func(r *raw) {
		r.bytes(frameOf(wire.TypeAMQP, 1, &wire.Begin{Properties: oddMap}, nil))
	}},
	{ruleFields, "flow properties", func(r *raw) {
		m, err := wire.AppendValue(nil, oddMap)
		require.NoError(r.t, err)
		r.send(&wire.Flow{NextIncomingID: wire.Some(0), Properties: m})
	}},
	{ruleFields, "info of end", func(r *raw) { r.send(&wire.End{Error: errOdd}) }},
	{ruleFields, "info of close", func(r *raw) { r.send(&wire.Close{Error: errOdd}) }},
	{ruleFields, "info of detach", func(r *raw) { r.sending().send(&wire.Detach{Error: errOdd}) }},
	settles(ruleFields, "info of rejected", func(d *wire.Disposition) {
		d.State = wire.State{Kind: wire.StateRejected, Error: errOdd}
	}),
	attaches(ruleFields, "dynamic-node-properties", func(a *wire.Attach) {
		*a.Source = wire.Source{Dynamic: true, DynamicNodeProperties: oddMap}
	}),
	{ruleChannelMax, "end on a channel above channel-max", func(r *raw) { r.bytes(frameOf(wire.TypeAMQP, 8, &wire.End{}, nil)) }},
	{ruleSessionFlow, "next-incoming-id left out again", func(r *raw) {
		r.send(&wire.Flow{NextIncomingID: wire.Some(0)}, &wire.Flow{})
	}},
	{ruleSessionID, "a next-incoming-id that goes back", func(r *raw) {
		r.receiving(1)
		r.awaitTransfer()
		r.send(&wire.Flow{NextIncomingID: wire.Some(1)}, &wire.Flow{NextIncomingID: wire.Some(0)})
	}},
	{ruleDeliveryCount, "a sender's flow ahead of what it sent", func(r *raw) {
		f := linkFlow(0)
		f.DeliveryCount = wire.Some(1)
		r.sending().send(f)
	}},
	{ruleDeliveryCount, "a sender's flow behind what it sent", func(r *raw) {
		r.sending().transfer(first(0), hello)
		f := linkFlow(0)
		f.NextOutgoingID = 1
		r.send(f)
	}},
	{ruleDeliveryCount, "a receiver's delivery-count left out again", func(r *raw) {
		f := linkFlow(1)
		f.DeliveryCount = wire.OptUint32{}
		r.receiving(1).send(f)
	}},
	{ruleDeliveryCount, "a receiver's delivery-count that goes back", func(r *raw) {
		r.receiving(1)
		r.awaitTransfer()
		f := linkFlow(1)
		f.NextIncomingID, f.DeliveryCount = wire.Some(1), wire.Some(1)
		back := *f
		back.DeliveryCount = wire.Some(0)
		r.send(f, &back)
	}},
	attaches(ruleUnsettled, "an unsettled map by name", func(a *wire.Attach) { a.Unsettled = wire.Map{{Key: "a"}} }),
	attaches(ruleUnsettled, "an unsettled map by a long tag", func(a *wire.Attach) { a.Unsettled = wire.Map{{Key: make([]byte, 33)}} }),
	attaches(ruleUnsettled, "an unsettled map of numbers", func(a *wire.Attach) { a.Unsettled = wire.Map{{Key: []byte("a"), Value: true}} }),
	attaches(ruleUnsettled, "an unsettled map of sources", func(a *wire.Attach) {
		a.Unsettled = wire.Map{{Key: []byte("a"), Value: wire.Described{Descriptor: wire.CodeSource, Value: wire.List{}}}}
	}),
	attaches(ruleTerminus, "durable 3", func(a *wire.Attach) { a.Source.Durable = 3 }),
	attaches(ruleTerminus, "an expiry-policy of its own", func(a *wire.Attach) { a.Target.ExpiryPolicy = "tomorrow" }),
	attaches(ruleTerminus, "a distribution-mode of its own", func(a *wire.Attach) { a.Source.DistributionMode = "steal" }),
	attaches(ruleTerminus, "dynamic with an address", func(a *wire.Attach) { a.Source.Dynamic = true }),
	attaches(ruleTerminus, "node properties of a node that is not dynamic", func(a *wire.Attach) {
		a.Source.DynamicNodeProperties = wire.Map{{Key: wire.Symbol("a"), Value: true}}
	}),
	attaches(ruleTerminus, "a default-outcome that is none", func(a *wire.Attach) {
		a.Source.DefaultOutcome = &wire.State{Kind: wire.StateReceived}
	}),
	attaches(ruleTerminus, "an outcome of its own", func(a *wire.Attach) { a.Source.Outcomes = []wire.Symbol{"amqp:ignored:list"} }),
	attaches(ruleTerminus, "a filter that is not described", func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: wire.Symbol("a"), Value: "b"}}
	}),
	attaches(ruleTerminus, "a filter under a string", func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: "a", Value: wire.Described{Descriptor: uint64(1), Value: "b"}}}
	}),
	{ruleTerminus, "a dynamic target with an address", func(r *raw) {
		a := attachSender(0)
		a.Target.Dynamic = true
		r.send(a)
	}},
	{ruleDeliveryTag, "a tag that is in use", func(r *raw) {
		r.secondly()
		again := first(1)
		again.DeliveryTag = first(0).DeliveryTag
		r.transfer(again, hello)
	}},
	publishes(ruleMessage, "no section at all", nil),
	publishes(ruleMessage, "a content-type that is a string", append([]byte{
		0, 0x53, 0x73, 0xc0, 10, 7, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0xa1, 1, 'a',
	}, hello...)),
	publishes(ruleMessage, "a subject that is a symbol", append([]byte{
		0, 0x53, 0x73, 0xc0, 7, 4, 0x40, 0x40, 0x40, 0xa3, 1, 'a',
	}, hello...)),
	publishes(ruleValue, "a body that is not UTF-8", []byte{0, 0x53, 0x77, 0xa1, 1, 0xff}),
	publishes(ruleValue, "a list that is not UTF-8", []byte{0, 0x53, 0x76, 0xc0, 4, 1, 0xa1, 1, 0xff}),
	publishes(ruleValue, "a header twice", append([]byte{
		0, 0x53, 0x74, 0xc1, 9, 4, 0xa1, 1, 'a', 0x41, 0xa1, 1, 'a', 0x41,
	}, hello...)),
	publishes(ruleAnnotations, "a reserved annotation", append([]byte{0, 0x53, 0x72, 0xc1, 5, 2, 0xa3, 1, 'a', 0x41}, hello...)),
	publishes(ruleAnnotations, "a numbered annotation", append([]byte{0, 0x53, 0x71, 0xc1, 4, 2, 0x53, 1, 0x41}, hello...)),
	publishes(ruleProperties, "content-encoding without data", append(
		(&wire.Properties{ContentEncoding: "gzip"}).Append(nil), 0, 0x53, 0x77, 0x41)),
	publishes(ruleProperties, "content-encoding identity", append(
		(&wire.Properties{ContentEncoding: "identity"}).Append(nil), hello...)),
	publishes(ruleApplication, "a header that is a list", append([]byte{0, 0x53, 0x74, 0xc1, 5, 2, 0xa1, 1, 'a', 0x45}, hello...)),
	{ruleState, "a transfer that is received", func(r *raw) {
		t := first(0)
		t.State = wire.State{Kind: wire.StateReceived}
		r.sending().transfer(t, hello)
	}},
	settles(ruleState, "declared", func(d *wire.Disposition) { d.State = wire.State{Kind: wire.StateDeclared} }),
	{ruleState, "a sender's received", func(r *raw) {
		r.sending().transfer(first(0), hello)
		r.send(&wire.Disposition{Role: wire.RoleSender, State: wire.State{Kind: wire.StateReceived}})
	}},
	{ruleState, "an outcome that the source has not", func(r *raw) {
		a := attachReceiver(0)
		a.Source.Outcomes = []wire.Symbol{"amqp:accepted:list"}
		r.send(a, linkFlow(1))
		r.awaitTransfer()
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: wire.State{Kind: wire.StateReleased}})
	}},
	settles(ruleTransaction, "an outcome in a transaction", func(d *wire.Disposition) {
		d.State = wire.State{Kind: wire.StateTransactional, TxnID: []byte("t"), Outcome: &wire.State{Kind: wire.StateAccepted}}
	}),
	{ruleTransaction, "a transfer in a transaction", func(r *raw) {
		t := first(0)
		t.State = wire.State{Kind: wire.StateTransactional, TxnID: []byte("t")}
		r.sending().transfer(t, hello)
	}},
	{ruleSettledTwice, "a sender that settles twice", func(r *raw) {
		r.secondly()
		d := &wire.Disposition{Role: wire.RoleSender, Settled: true}
		r.send(d, d)
	}},
}
