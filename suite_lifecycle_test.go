package amqpflow_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func wrongPasswordFailsAtSASL(t *testing.T, p suitePeer) {
	const wrong = "no-such-password"
	b := amqpflow.New(withPassword(t, p, wrong))

	err := b.Connect(patient(t))

	var failed *amqpflow.ConnectError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "sasl", failed.Step)
	assert.NotContains(t, err.Error(), wrong)
	assert.NotContains(t, fmt.Sprintf("%+v %#v", failed, failed.URL), wrong)
	assert.ErrorIs(t, b.Publisher().Publish(patient(t), "anywhere", "x"), amqpflow.ErrNotConnected)
}

// virtualHostIsTheHostname is RabbitMQ's alone: its default virtual host by
// name, and one that does not exist.
func virtualHostIsTheHostname(t *testing.T, p suitePeer) {
	if _, ok := p.(*rabbitPeer); !ok {
		t.Skip("has no virtual hosts")
	}
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p, &amqpflow.Options{Hostname: "vhost:/"})
	mustConnect(t, b)
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x"))
	assert.Equal(t, []string{"x"}, bodiesOf(q.take(t, 1)))

	err := brokerAt(p, &amqpflow.Options{Hostname: "vhost:" + uniqueName()}).Connect(patient(t))

	var failed *amqpflow.ConnectError
	require.ErrorAs(t, err, &failed, "it is not the default instead")
	assert.Equal(t, "open", failed.Step)
}

func refusedAttachNamesTheAddress(t *testing.T, p suitePeer) {
	good, refusing := p.newQueue(t, testQueueOptions{}), p.refusing(t)
	b := brokerAt(p)
	accept := func(context.Context, *amqpflow.Delivery) error { return nil }
	attached := b.Subscribe(good.addr, accept)
	refused := b.Subscribe(refusing, accept)

	err := b.Connect(patient(t))

	var failed *amqpflow.AttachError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, refusing, failed.Address)
	assert.Contains(t, err.Error(), string(refusing))
	assert.Equal(t, amqpflow.Registered, attached.State(), "Connect took everything back")
	assert.Equal(t, amqpflow.Registered, refused.State())
	assert.ErrorIs(t, b.Ready(), amqpflow.ErrNotConnected)
	assert.ErrorAs(t, b.Connect(patient(t)), &failed, "Connect can be repeated")
}

// refusedAttachHarmsNoSibling attaches late, so that the refusal meets a
// connection with links on it.
func refusedAttachHarmsNoSibling(t *testing.T, p suitePeer) {
	good, refusing := p.newQueue(t, testQueueOptions{}), p.refusing(t)
	b := brokerAt(p)
	handled := make(chan string, 1)
	amqpflow.Subscribe(b, good.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		handled <- m.Body
		return nil
	})
	mustConnect(t, b)

	late := b.Subscribe(refusing, func(context.Context, *amqpflow.Delivery) error { return nil })

	var failed *amqpflow.AttachError
	require.ErrorAs(t, late.Attached(patient(t)), &failed)
	assert.Equal(t, refusing, failed.Address)
	assert.Equal(t, amqpflow.Attaching, late.State(), "it is tried again")
	assert.ErrorAs(t, late.Err(), &failed)
	assert.ErrorAs(t, b.Ready(), &failed)
	require.NoError(t, b.Publisher().Publish(patient(t), good.addr, "still here"))
	assert.Equal(t, "still here", await(t, patience, handled))
}

func readingAttachesNoSender(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, "one")
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	handled := make(chan string, 2)
	amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
		handled <- m.Body
		return nil
	})
	mustConnect(t, b)
	require.Equal(t, "one", await(t, patience, handled))

	attaches := wiretap.sentAttaches(t)
	require.Len(t, attaches, 1)
	assert.Equal(t, wire.RoleReceiver, attaches[0].Role)

	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "two"))
	require.Equal(t, "two", await(t, patience, handled))
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "three"))
	require.Equal(t, "three", await(t, patience, handled))

	attaches = wiretap.sentAttaches(t)
	require.Len(t, attaches, 2, "the first publish attaches the link, the second uses it")
	assert.Equal(t, wire.RoleSender, attaches[1].Role)
	shutDown(t, b)
	assert.Len(t, wiretap.sentAttaches(t), 2)
}

func fortySubscriptionsShareAConnection(t *testing.T, p suitePeer) {
	const n = 40
	var wiretap tap
	b := brokerAt(p, &amqpflow.Options{DialContext: wiretap.dial})
	type arrival struct {
		to   amqpflow.Address
		body string
	}
	handled := make(chan arrival, n)
	want := make([]arrival, n)
	for i := range want {
		q := p.newQueue(t, testQueueOptions{})
		want[i] = arrival{to: q.addr, body: fmt.Sprint(i)}
		amqpflow.Subscribe(b, q.addr, func(_ context.Context, m *amqpflow.Message[string]) error {
			handled <- arrival{to: m.Address(), body: m.Body}
			return nil
		}, &amqpflow.SubscribeOptions{Credit: 1 + i})
	}
	mustConnect(t, b)
	require.NoError(t, b.Ready())

	for _, a := range want {
		require.NoError(t, b.Publisher().Publish(patient(t), a.to, a.body))
	}
	got := make([]arrival, n)
	for i := range got {
		got[i] = await(t, patience, handled)
	}
	assert.ElementsMatch(t, want, got)
	shutDown(t, b)
	opens := 0
	for _, f := range wiretap.all(t) {
		if f.sent && f.code == wire.CodeOpen {
			opens++
		}
	}
	assert.Equal(t, 1, opens)
}
