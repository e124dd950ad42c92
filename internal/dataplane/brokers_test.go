package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// broker is a real one, named by its URL in the environment.
type broker struct {
	env, node, kind string
	caps            []string
}

var brokers = []broker{
	{"AMQPFLOW_ARTEMIS_URL", "%s", "queue", []string{"queue"}},
	{"AMQPFLOW_RABBITMQ_URL", "/queues/%s", "", nil},
}

// dialed is a plane to a broker with one session.
type dialed struct {
	t  *testing.T
	c  *Conn
	ac *amqp.Conn
	s  *Session
	as *amqp.Session
}

func (b broker) dial(t *testing.T, container string) *dialed {
	t.Helper()
	u, err := url.Parse(os.Getenv(b.env))
	require.NoError(t, err)
	if u.Host == "" {
		t.Skip(b.env, "is not set")
	}
	nc, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	d := &dialed{t: t, c: New(nc, Options{})}
	password, _ := u.User.Password()
	d.ac, err = amqp.NewConn(t.Context(), d.c, &amqp.ConnOptions{
		ContainerID: container, HostName: u.Hostname(), SASLType: amqp.SASLTypePlain(u.User.Username(), password),
	})
	require.NoError(t, err)
	d.session()
	t.Cleanup(d.close)
	return d
}

func (d *dialed) close() {
	_ = d.c.Close()
	_ = d.ac.Close()
	d.c.Wait()
}

// session begins another session, which takes the place of the first.
func (d *dialed) session() {
	d.t.Helper()
	var err error
	d.s, err = d.c.ExpectSession()
	require.NoError(d.t, err)
	d.as, err = d.ac.NewSession(d.t.Context(), nil)
	require.NoError(d.t, err)
}

func (d *dialed) receiver(node string, o amqp.ReceiverOptions) (*Link, *amqp.Receiver) {
	d.t.Helper()
	l, err := d.s.Expect(wire.RoleReceiver, o.Name, LinkOptions{})
	require.NoError(d.t, err)
	o.Credit = -1
	rcv, err := d.as.NewReceiver(d.t.Context(), node, &o)
	require.NoError(d.t, err)
	return l, rcv
}

func (d *dialed) sender(node string, o amqp.SenderOptions) *Link {
	d.t.Helper()
	l, err := d.s.Expect(wire.RoleSender, o.Name, LinkOptions{})
	require.NoError(d.t, err)
	_, err = d.as.NewSender(d.t.Context(), node, &o)
	require.NoError(d.t, err)
	return l
}

// queue makes a queue of its own for the test and returns its node.
func (b broker) queue(t *testing.T, d *dialed) string {
	t.Helper()
	name := fmt.Sprintf("plane-%d", time.Now().UnixNano())
	node := fmt.Sprintf(b.node, name)
	if b.kind != "" {
		return node // made by attaching
	}
	paired := map[string]any{"paired": true}
	in, _ := d.receiver("/management", amqp.ReceiverOptions{Name: "m", TargetAddress: "/management", Properties: paired})
	require.NoError(t, in.Grant(10, true))
	out := d.sender("/management", amqp.SenderOptions{
		Name: "m", SourceAddress: "/management", Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	request := func(ctx context.Context, method string, body any) {
		m := amqp.Message{
			Properties: &amqp.MessageProperties{MessageID: method, To: &node, Subject: &method, ReplyTo: new("$me")},
			Value:      body,
		}
		payload, err := m.MarshalBinary()
		require.NoError(t, err)
		_, err = out.Send(ctx, payload, SendOptions{Settled: true})
		require.NoError(t, err)
		require.NoError(t, in.Settle(take(t, in, 1)[0].ID, accepted))
	}
	request(t.Context(), "PUT", map[string]any{"durable": true})
	t.Cleanup(func() { request(context.Background(), "DELETE", amqp.Null{}) })
	return node
}

func (d *dialed) publish(l *Link, from, to uint32) {
	d.t.Helper()
	var rs []*Receipt
	for i := from; i < to; i++ {
		r, err := l.Send(d.t.Context(), wire.AppendData(nil, binary.BigEndian.AppendUint32(nil, i)), SendOptions{})
		require.NoError(d.t, err)
		rs = append(rs, r)
	}
	for _, r := range rs {
		require.Equal(d.t, wire.StateAccepted, outcome(d.t, r).Kind)
	}
}

func number(d Delivery) uint32 { return binary.BigEndian.Uint32(d.Payload[len(d.Payload)-4:]) }

// What was settled before Close is not delivered again, though a thousand transfers
// are under way that nobody reads.
func TestBrokers_closeLosesNoSettlement(t *testing.T) {
	const total, settled, window = 2000, 250, 1250
	for _, b := range brokers {
		t.Run(b.env, func(t *testing.T) {
			admin := b.dial(t, "plane-admin")
			node := b.queue(t, admin)
			admin.publish(admin.sender(node, amqp.SenderOptions{Name: "s", TargetCapabilities: b.caps}), 0, total)

			d := b.dial(t, "plane-consumer")
			l, _ := d.receiver(node, amqp.ReceiverOptions{Name: "r", SourceCapabilities: b.caps})
			require.NoError(t, l.Grant(window, true))
			gone := make(map[uint32]bool)
			for _, m := range take(t, l, settled) {
				gone[number(m)] = true
				require.NoError(t, l.Settle(m.ID, accepted))
			}
			d.close()
			require.ErrorIs(t, d.c.Err(), ErrClosed)

			left, _ := admin.receiver(node, amqp.ReceiverOptions{Name: "left", SourceCapabilities: b.caps})
			require.NoError(t, left.Grant(total, true))
			for _, m := range take(t, left, total-settled) {
				assert.False(t, gone[number(m)], "%d was settled", number(m))
				require.NoError(t, left.Settle(m.ID, accepted))
			}
			require.NoError(t, left.Drain(t.Context()))
			assert.Zero(t, left.Deliveries(make([]Delivery, 1)))
		})
	}
}

// A detach that is not closing leaves a durable subscription on Artemis in being. It
// can be attached again on the session, on another, and from another connection.
func TestBrokers_durableSubscriptionOutlivesItsLink(t *testing.T) {
	b := brokers[0]
	container := fmt.Sprintf("plane-%d", time.Now().UnixNano())
	topic := container + "-topic"
	d := b.dial(t, container)
	options := amqp.ReceiverOptions{
		Name: "sub", SourceCapabilities: []string{"topic"},
		SourceDurability: amqp.DurabilityUnsettledState, SourceExpiryPolicy: amqp.ExpiryPolicyNever,
	}
	out := b.dial(t, container+"-out")
	pub := out.sender(topic, amqp.SenderOptions{Name: "s", TargetCapabilities: []string{"topic"}})

	l, rcv := d.receiver(topic, options)
	ways := []func(){
		func() {},
		func() { d.session() },
		func() { d.close(); d = b.dial(t, container) },
	}
	for i, again := range ways {
		l.SetDetach(nil, true)
		require.NoError(t, rcv.Close(t.Context()))
		out.publish(pub, uint32(i), uint32(i)+1) // while nobody is attached
		again()
		l, rcv = d.receiver(topic, options)
		require.NoError(t, l.Grant(10, true))
		m := take(t, l, 1)[0]
		assert.EqualValues(t, i, number(m))
		require.NoError(t, l.Settle(m.ID, accepted))
	}
	l.SetDetach(nil, false)
	require.NoError(t, rcv.Close(t.Context())) // deletes it
}
