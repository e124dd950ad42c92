package amqptest

import (
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// script breaks one rule, after the connection was opened.
type script struct {
	rule rule
	does string
	run  func(r *raw)
}

// scripts break rules of connections, sessions and links.
var scripts = []script{
	{ruleFrame, "a frame shorter than its header", func(r *raw) { r.bytes([]byte{0, 0, 0, 7, 2, 0, 0, 0}) }},
	{ruleFrame, "a data offset beyond the frame", func(r *raw) { r.bytes([]byte{0, 0, 0, 8, 3, 0, 0, 0}) }},
	{ruleFrame, "a SASL frame after SASL", func(r *raw) { r.bytes(frameOf(wire.TypeSASL, 0, &wire.SASLOutcome{}, nil)) }},
	{ruleFrameSize, "a frame over max-frame-size", func(r *raw) { r.bytes([]byte{0, 0x10, 0, 0, 2, 0, 0, 0}) }},
	{rulePerformative, "a performative that does not decode", func(r *raw) { r.bytes([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x12, 0xff}) }},
	{rulePerformative, "no performative", func(r *raw) { r.bytes([]byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}) }},
	{ruleUnexpectedFrame, "a second open", func(r *raw) { r.send(&wire.Open{ContainerID: "again", MaxFrameSize: 512}) }},
	{ruleUnexpectedFrame, "a performative that does not exist", func(r *raw) { r.bytes([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x19, 0x45}) }},
	{ruleChannel, "a channel without session", func(r *raw) { r.bytes(frameOf(wire.TypeAMQP, 3, &wire.End{}, nil)) }},
	{ruleChannel, "a second begin", func(r *raw) { r.send(&wire.Begin{}) }},
	{ruleChannel, "a frame after end", func(r *raw) { r.send(&wire.End{}, attachSender(0)) }},
	{ruleChannel, "an answer to no begin", func(r *raw) {
		r.bytes(frameOf(wire.TypeAMQP, 1, &wire.Begin{RemoteChannel: wire.Some(0)}, nil))
	}},
	{ruleChannelMax, "a channel above channel-max", func(r *raw) { r.bytes(frameOf(wire.TypeAMQP, 8, &wire.Begin{}, nil)) }},
	{ruleChannelMax, "a heartbeat above channel-max", func(r *raw) { r.bytes([]byte{0, 0, 0, 8, 2, 0, 0, 8}) }},
	{ruleHandleMax, "a handle above handle-max", func(r *raw) { r.send(attachSender(8)) }},
	{ruleHandleInUse, "a handle in use", func(r *raw) { r.send(attachSender(0), attachReceiver(0)) }},
	{ruleAttach, "a sender without initial-delivery-count", func(r *raw) {
		a := attachSender(0)
		a.InitialDeliveryCount = wire.OptUint32{}
		r.send(a)
	}},
	{ruleHandle, "a detach of nothing", func(r *raw) { r.send(&wire.Detach{Handle: 4}) }},
	{ruleHandle, "a flow after detach", func(r *raw) { r.send(attachReceiver(0), &wire.Detach{Closed: true}, linkFlow(1)) }},
	{ruleHandle, "a transfer after detach", func(r *raw) {
		r.sending().send(&wire.Detach{Closed: true})
		r.transfer(first(0), hello)
	}},
	{ruleSessionID, "a next-incoming-id that was not sent", func(r *raw) { r.send(&wire.Flow{NextIncomingID: wire.Some(1)}) }},
	{ruleSessionID, "a next-outgoing-id out of step", func(r *raw) { r.send(&wire.Flow{NextIncomingID: wire.Some(0), NextOutgoingID: 1}) }},
	{ruleDeliveryCount, "a delivery-count ahead of the sender's", func(r *raw) {
		f := linkFlow(1)
		f.DeliveryCount = wire.Some(1)
		r.send(attachReceiver(0), f)
	}},
	{ruleDeliveryCount, "a sender's flow without delivery-count", func(r *raw) {
		f := linkFlow(0)
		f.DeliveryCount = wire.OptUint32{}
		r.sending().send(f)
	}},
	{ruleSessionFlow, "credit without a handle", func(r *raw) {
		f := linkFlow(1)
		f.Handle, f.DeliveryCount = wire.OptUint32{}, wire.OptUint32{}
		r.send(f)
	}},
	{ruleSessionFlow, "drain without a handle", func(r *raw) {
		r.send(&wire.Flow{NextIncomingID: wire.Some(0), Drain: true})
	}},
	{ruleLinkCredit, "a delivery on a refused link", func(r *raw) {
		r.send(refusedSender(5))
		t := first(0)
		t.Handle = 5
		r.transfer(t, hello)
	}},
	{ruleDirection, "a transfer on a receiving link", func(r *raw) {
		r.receiving(0).transfer(first(0), hello)
	}},
	{ruleFirstTransfer, "no delivery-id", func(r *raw) {
		t := first(0)
		t.DeliveryID = wire.OptUint32{}
		r.sending().transfer(t, hello)
	}},
	{ruleFirstTransfer, "no delivery-tag", func(r *raw) {
		t := first(0)
		t.DeliveryTag = nil
		r.sending().transfer(t, hello)
	}},
	{ruleDeliveryTag, "a delivery-tag of 33 bytes", func(r *raw) {
		t := first(0)
		t.DeliveryTag = make([]byte, 33)
		r.sending().transfer(t, hello)
	}},
	{ruleFirstTransfer, "no message-format", func(r *raw) {
		t := first(0)
		t.MessageFormat = wire.OptUint32{}
		r.sending().transfer(t, hello)
	}},
	{ruleDeliveryID, "a delivery-id left out", func(r *raw) {
		r.sending().transfer(first(0), hello)
		r.transfer(first(2), hello)
	}},
	{ruleDeliveryID, "a delivery-id twice", func(r *raw) {
		r.sending().transfer(first(7), hello)
		r.transfer(first(7), hello)
	}},
	{ruleContinuation, "another delivery-id within a delivery", func(r *raw) {
		t := first(0)
		t.More = true
		r.sending().transfer(t, hello)
		r.transfer(first(1), hello)
	}},
	{ruleContinuation, "resumed after the first frame", func(r *raw) {
		t := first(0)
		t.More = true
		r.sending().transfer(t, hello)
		r.transfer(wire.Transfer{Resume: true}, nil)
	}},
	{ruleContinuation, "another tag within a delivery", func(r *raw) {
		t := first(0)
		t.More = true
		r.sending().transfer(t, hello)
		r.transfer(wire.Transfer{DeliveryTag: []byte("x")}, nil)
	}},
	{ruleContinuation, "another format within a delivery", func(r *raw) {
		t := first(0)
		t.More = true
		r.sending().transfer(t, hello)
		r.transfer(wire.Transfer{MessageFormat: wire.Some(1)}, nil)
	}},
	{ruleSettleMode, "unsettled where all is settled", func(r *raw) {
		a := attachSender(0)
		a.SndSettleMode = sndSettled
		r.send(a)
		r.awaitFlow()
		r.transfer(first(0), hello)
	}},
	{ruleSettleMode, "settled where all is unsettled", func(r *raw) {
		a := attachSender(0)
		a.SndSettleMode = sndUnsettled
		r.send(a)
		r.awaitFlow()
		t := first(0)
		t.Settled, t.HasSettled = true, true
		r.transfer(t, hello)
	}},
	{ruleSettleMode, "rcv-settle-mode second where the link's is first", func(r *raw) {
		t := first(0)
		t.RcvSettleMode = wire.Some(uint32(rcvSecond))
		r.sending().transfer(t, hello)
	}},
	{ruleResume, "a delivery resumed that the client has not unsettled", func(r *raw) {
		t := first(0)
		t.Resume = true
		r.sending().transfer(t, hello)
	}},
	{ruleMessage, "bytes that are no message", func(r *raw) { r.sending().transfer(first(0), []byte("hello")) }},
	{ruleAnnotations, "an annotation under a string", func(r *raw) {
		m, err := wire.AppendSection(nil, wire.CodeMessageAnnotations, wire.Map{{Key: "x-opt-a", Value: true}})
		require.NoError(r.t, err)
		r.sending().transfer(first(0), append(m, hello...))
	}},
	{ruleDisposition, "a disposition of a delivery never sent", func(r *raw) {
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Settled: true})
	}},
	{ruleDisposition, "a disposition of every delivery there can be", func(r *raw) {
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Last: 1<<32 - 1, Settled: true})
	}},
	{ruleDisposition, "a sender's disposition of a delivery never sent", func(r *raw) {
		r.sending().transfer(first(7), hello)
		r.send(&wire.Disposition{Role: wire.RoleSender, First: 7, Last: 8, Settled: true})
	}},
	{ruleDisposition, "a range from back to front", func(r *raw) {
		r.receiving(2)
		r.awaitTransfer()
		r.awaitTransfer()
		r.send(&wire.Disposition{Role: wire.RoleReceiver, First: 1, Last: 0, Settled: true})
	}},
	{ruleFields, "annotations whose keys are no symbols", func(r *raw) {
		r.receiving(1)
		r.awaitTransfer()
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: wire.State{Kind: wire.StateModified, Annotations: oddMap}})
	}},
	{ruleSettledTwice, "a delivery settled twice", func(r *raw) {
		r.receiving(1)
		r.awaitTransfer()
		d := &wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: wire.State{Kind: wire.StateAccepted}}
		r.send(d, d)
	}},
	{ruleIdle, "silence", func(*raw) {}},
}

// refusedSender asks for what is refused, and so gets no credit.
func refusedSender(handle uint32) *wire.Attach {
	a := attachSender(handle)
	a.Target.Address = ""
	return a
}
