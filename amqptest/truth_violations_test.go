package amqptest_test

import (
	"testing"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// broken breaks a rule of the standard on an open session and says what comes
// back.
func broken(breakIt func(r *rawClient, n node)) func(*testing.T, *peer) string {
	return func(t *testing.T, p *peer) string {
		n := p.queue(t, queueOptions{})
		r := openRaw(t, p)
		breakIt(r, n)
		return r.reaction()
	}
}

func largeFrame(r *rawClient, _ node) {
	r.write(frameOf(wire.TypeAMQP, 0, nil, make([]byte, 200_000)))
}

func withoutCredit(r *rawClient, n node) {
	a := r.attach(wire.RoleSender)
	a.Target = n.target()
	b := frameOf(wire.TypeAMQP, 0, a, nil)
	x := wire.Transfer{Handle: a.Handle, DeliveryID: wire.Some(0), DeliveryTag: []byte("0"), MessageFormat: wire.Some(0)}
	r.write(append(b, frameOf(wire.TypeAMQP, 0, &x, wire.AppendData(nil, []byte("a")))...))
}

func unknownHandle(r *rawClient, _ node) { r.transfer(77, wire.AppendData(nil, []byte("a"))) }

func unknownHandleDetached(r *rawClient, _ node) { r.send(&wire.Detach{Handle: 77, Closed: true}) }

func unknownHandleFlow(r *rawClient, _ node) { r.send(r.credit(77, 1)) }

func unknownChannel(r *rawClient, _ node) { r.sendOn(9, r.flow()) }

func secondOpen(r *rawClient, _ node) {
	r.send(&wire.Open{ContainerID: "again", MaxFrameSize: 65536, ChannelMax: 10})
}

func secondBegin(r *rawClient, _ node) {
	r.send(&wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10})
}

func handleInUse(r *rawClient, n node) {
	h := r.receiver(n)
	a := r.attach(wire.RoleReceiver)
	a.Handle, a.Source = h, n.source()
	r.send(a)
}

func noInitialCount(r *rawClient, n node) {
	a := r.attach(wire.RoleSender)
	a.Target, a.InitialDeliveryCount = n.target(), wire.OptUint32{}
	r.send(a)
}

func unknownDelivery(r *rawClient, n node) {
	r.receiver(n)
	r.send(&wire.Disposition{Role: wire.RoleReceiver, First: 5, Last: 5, Settled: true, State: accepted})
}

func transferToAReceiver(r *rawClient, n node) {
	h := r.receiver(n)
	r.transfer(h, wire.AppendData(nil, []byte("a")))
}

func noDeliveryID(r *rawClient, n node) {
	h := r.sender(n)
	r.fragment(wire.Transfer{Handle: h, DeliveryTag: []byte("0"), MessageFormat: wire.Some(0)}, wire.AppendData(nil, []byte("a")))
}

func noDeliveryTag(r *rawClient, n node) {
	h := r.sender(n)
	r.fragment(wire.Transfer{Handle: h, DeliveryID: wire.Some(0), MessageFormat: wire.Some(0)}, wire.AppendData(nil, []byte("a")))
}

// deliveryIDs go back, which makes Artemis hang until it is restarted.
func deliveryIDs(r *rawClient, n node) {
	h := r.sender(n)
	for _, id := range []uint32{1, 0} {
		r.fragment(wire.Transfer{
			Handle: h, DeliveryID: wire.Some(id), DeliveryTag: []byte{byte(id)}, MessageFormat: wire.Some(0),
		}, wire.AppendData(nil, []byte("a")))
	}
}

func noPerformative(r *rawClient, _ node) { r.write([]byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}) }

func unknownPerformative(r *rawClient, _ node) {
	r.write([]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45})
}

// settledTwice accepts a delivery two times.
func settledTwice(r *rawClient, n node) {
	h := r.sender(n)
	r.transfer(h, wire.AppendData(nil, []byte("a")))
	await[wire.Disposition](r)
	x := r.takeOne(n)
	r.settle(accepted, x, x)
}
