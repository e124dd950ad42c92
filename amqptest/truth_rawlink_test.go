package amqptest_test

import (
	"fmt"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// await returns the next performative of type P and drops those before it.
func await[P any](r *rawClient) *P {
	r.t.Helper()
	for {
		switch p := r.next().(type) {
		case *P:
			return p
		case nil:
			require.Fail(r.t, "the connection ended", "before %T", *new(P))
		case *wire.Close:
			require.Fail(r.t, "the connection was closed", "before %T: %v", *new(P), p.Error)
		case *wire.End:
			require.Fail(r.t, "the session was ended", "before %T: %v", *new(P), p.Error)
		}
	}
}

// attach is a link of the next free handle.
func (r *rawClient) attach(role wire.Role) *wire.Attach {
	h := r.links
	r.links++
	a := &wire.Attach{
		Name: unique("link"), Handle: h, Role: role, SndSettleMode: wire.SndMixed,
		Source: &wire.Source{}, Target: &wire.Target{},
	}
	if role == wire.RoleSender {
		a.InitialDeliveryCount = wire.Some(0)
	}
	return a
}

// answer attaches a and returns the peer's attach.
func (r *rawClient) answer(a *wire.Attach) *wire.Attach {
	r.t.Helper()
	r.send(a)
	b := await[wire.Attach](r)
	r.received[a.Handle] = b.InitialDeliveryCount.Value
	return b
}

// attached says how the attach that was sent is answered.
func (r *rawClient) attached(a *wire.Attach) string {
	r.t.Helper()
	for {
		switch f := r.next().(type) {
		case *wire.Attach:
			if (f.Source != nil || a.Role == wire.RoleSender) && (f.Target != nil || f.Coordinator != nil || a.Role == wire.RoleReceiver) {
				r.send(&wire.Detach{Handle: a.Handle, Closed: true})
			}
		case *wire.Detach:
			if f.Error == nil {
				return "attached"
			}
			return said("detach", f.Error)
		case *wire.End:
			return said("end", f.Error)
		case *wire.Close:
			return said("close", f.Error)
		case nil:
			return "socket closed"
		}
	}
}

// sender attaches a sender to n and returns its handle once there is credit.
func (r *rawClient) sender(n node) uint32 {
	r.t.Helper()
	a := r.attach(wire.RoleSender)
	a.Target = n.target()
	r.send(a)
	r.granted = await[wire.Flow](r).LinkCredit.Value
	require.Positive(r.t, r.granted)
	return a.Handle
}

// receiver attaches a receiver to n and returns its handle.
func (r *rawClient) receiver(n node) uint32 {
	r.t.Helper()
	a := r.attach(wire.RoleReceiver)
	a.Source = n.source()
	r.answer(a)
	return a.Handle
}

// flow is one with the session's numbers in it.
func (r *rawClient) flow() *wire.Flow {
	return &wire.Flow{
		NextIncomingID: wire.Some(r.begin.NextOutgoingID + r.incoming), IncomingWindow: 1000,
		NextOutgoingID: r.outgoing, OutgoingWindow: 1000,
	}
}

// credit is a flow that grants credit to a receiving link.
func (r *rawClient) credit(handle, credit uint32) *wire.Flow {
	f := r.flow()
	f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(handle), wire.Some(r.received[handle]), wire.Some(credit)
	return f
}

// drain takes at most credit deliveries, and returns them once the peer has
// said that there are no more, or has used up the credit.
func (r *rawClient) drain(handle, credit uint32) []*wire.Transfer {
	r.t.Helper()
	f := r.credit(handle, credit)
	f.Drain = true
	r.send(f)
	var got []*wire.Transfer
	end := f.DeliveryCount.Value + credit
	for r.received[handle] != end {
		switch p := r.next().(type) {
		case *wire.Transfer:
			got = append(got, p)
		case *wire.Flow:
			if p.Handle.Set && p.DeliveryCount.Value == end {
				r.received[handle] = end
			}
		case nil:
			require.Fail(r.t, "the connection ended before the drain was answered")
		}
	}
	return got
}

// transfer sends a message.
func (r *rawClient) transfer(handle uint32, payload []byte) {
	id := r.deliveries
	r.deliveries++
	x := wire.Transfer{
		Handle: handle, DeliveryID: wire.Some(id), DeliveryTag: fmt.Append(nil, id), MessageFormat: wire.Some(0),
	}
	const room = 100 << 10
	for ; len(payload) > room; payload = payload[room:] {
		x.More = true
		r.fragment(x, payload[:room])
		x = wire.Transfer{Handle: handle}
	}
	x.More = false
	r.fragment(x, payload)
}

// fragment sends one transfer frame.
func (r *rawClient) fragment(x wire.Transfer, payload []byte) {
	r.write(frameOf(wire.TypeAMQP, 0, &x, payload))
	r.outgoing++
}

// publish sends m and says what came back for it.
func (r *rawClient) publish(handle uint32, m *amqp.Message) string {
	r.t.Helper()
	payload, err := m.MarshalBinary()
	require.NoError(r.t, err)
	r.transfer(handle, payload)
	return r.outcome()
}

// outcome is what comes back for a delivery.
func (r *rawClient) outcome() string {
	r.t.Helper()
	for {
		switch f := r.next().(type) {
		case *wire.Disposition:
			return wireState(f.State)
		case *wire.Detach:
			return said("detach", f.Error)
		case *wire.End:
			return said("end", f.Error)
		case *wire.Close:
			return said("close", f.Error)
		case nil:
			return "socket closed"
		}
	}
}

// settle answers deliveries that came.
func (r *rawClient) settle(s wire.State, xs ...*wire.Transfer) {
	for _, x := range xs {
		r.send(&wire.Disposition{Role: wire.RoleReceiver, First: x.DeliveryID.Value, Last: x.DeliveryID.Value, Settled: true, State: s})
	}
}

// takeOne attaches to n and waits for a delivery.
func (r *rawClient) takeOne(n node) *wire.Transfer {
	r.t.Helper()
	h := r.receiver(n)
	r.send(r.credit(h, 1))
	return await[wire.Transfer](r)
}
