package amqpflow_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// suitePeer is a broker that the suite runs on. Behaviours see it through
// amqpflow, through go-amqp on a connection of its own, and through the few
// things below, which every broker does in its own way.
type suitePeer interface {
	// url has a user and a password that the peer lets in.
	url() string
	// newQueue makes an empty queue, which is deleted when the test ends.
	newQueue(t *testing.T, o testQueueOptions) *testQueue
	// refusing returns an address to which no receiving link attaches.
	refusing(t *testing.T) amqpflow.Address
	// refusingSenders returns an address to which no sending link attaches.
	refusingSenders(t *testing.T) amqpflow.Address
	// unroutable returns an address at which a message is released, "" where
	// the peer has none.
	unroutable(t *testing.T) amqpflow.Address
	// deadLetters takes n dead letters of q.
	deadLetters(t *testing.T, q *testQueue, n int) []*amqp.Message
	// detach makes the peer detach the receiving link that q has. It is false
	// where nobody can make it do so.
	detach(t *testing.T, q *testQueue) bool
	// quiet is how long nothing comes until nothing will.
	quiet() time.Duration
}

// testQueueOptions says what a queue is for.
type testQueueOptions struct {
	// deadLetters keeps what is rejected, and what has failed three times.
	deadLetters bool
	// deadLetterQueue is the queue that keeps it, where the test reads it itself.
	deadLetterQueue *testQueue
	// small takes a few messages and rejects those that come then.
	small bool
}

// suiteSmall is how many messages a small queue has room for, more or less.
const suiteSmall = 4

// suiteAttempts is how often a queue with dead letters delivers a message.
const suiteAttempts = 3

// testQueue is a queue of a peer, as amqpflow and as go-amqp call it.
type testQueue struct {
	p    suitePeer
	name string
	addr amqpflow.Address
	node string
	caps []string
}

// brokerAt returns a Broker for p.
func brokerAt(p suitePeer, opts ...*amqpflow.Options) *amqpflow.Broker {
	return amqpflow.New(p.url(), opts...)
}

// withPassword is p's URL with another password.
func withPassword(t *testing.T, p suitePeer, password string) string {
	t.Helper()
	u, err := url.Parse(p.url())
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

// passwordOf is the password in p's URL.
func passwordOf(t *testing.T, p suitePeer) string {
	t.Helper()
	u, err := url.Parse(p.url())
	require.NoError(t, err)
	password, _ := u.User.Password()
	return password
}

// withoutUser is p's URL without user-info.
func withoutUser(t *testing.T, p suitePeer) string {
	t.Helper()
	u, err := url.Parse(p.url())
	require.NoError(t, err)
	u.User = nil
	return u.String()
}

// userOf is the user in p's URL.
func userOf(t *testing.T, p suitePeer) string {
	t.Helper()
	u, err := url.Parse(p.url())
	require.NoError(t, err)
	return u.User.Username()
}

// fakePeer is amqptest, on a loopback port.
type fakePeer struct {
	server  *amqptest.Server
	where   string
	dialect amqpflow.Dialect
}

const (
	fakeUser     = "suite"
	fakePassword = "p@ss/w0rd"
)

func openFake(t *testing.T, _ string) suitePeer { return openFakeAs(t, amqpflow.DialectGeneric) }

func openFakeAs(t *testing.T, dialect amqpflow.Dialect) *fakePeer {
	s := amqptest.NewServer(&amqptest.Options{
		Dialect: dialect, Users: map[string]string{fakeUser: fakePassword}, MaxDeliveries: suiteAttempts,
		ChannelMax: 63, HandleMax: 255, // RabbitMQ's
	})
	t.Cleanup(func() { assert.NoError(t, s.Close(), "every rule of the protocol was kept") })
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(fakeUser, fakePassword)
	return &fakePeer{server: s, where: u.String(), dialect: dialect}
}

func (p *fakePeer) url() string          { return p.where }
func (p *fakePeer) quiet() time.Duration { return 200 * time.Millisecond }

func (p *fakePeer) newQueue(t *testing.T, o testQueueOptions) *testQueue {
	t.Helper()
	name := uniqueName()
	q := &testQueue{p: p, name: name, addr: amqpflow.Queue(name), node: name, caps: []string{"queue"}}
	if p.dialect == amqpflow.DialectRabbitMQ {
		q.node, q.caps = "/queues/"+name, nil
	}
	var node amqptest.NodeOptions
	if o.deadLetterQueue != nil {
		node.DeadLetter = o.deadLetterQueue.addr
	}
	if o.small {
		node.MaxLength = suiteSmall
	}
	require.NoError(t, p.server.Declare(q.addr, &node))
	return q
}

func (p *fakePeer) refusing(t *testing.T) amqpflow.Address {
	t.Helper()
	addr := amqpflow.Queue(uniqueName())
	require.NoError(t, p.server.Fault(amqptest.RefuseAttach(addr, amqp.ErrCondNotFound, "no such queue").Times(100)))
	return addr
}

func (p *fakePeer) refusingSenders(t *testing.T) amqpflow.Address { return p.refusing(t) }

func (p *fakePeer) unroutable(t *testing.T) amqpflow.Address {
	t.Helper()
	addr := amqpflow.Queue(uniqueName())
	require.NoError(t, p.server.Fault(amqptest.Answer(addr, amqpflow.Released, nil).Times(100)))
	return addr
}

func (p *fakePeer) detach(t *testing.T, q *testQueue) bool {
	t.Helper()
	require.NoError(t, p.server.Fault(amqptest.Detach(q.addr, amqp.ErrCondDetachForced, "by the suite")))
	return true
}

func (p *fakePeer) deadLetters(t *testing.T, q *testQueue, n int) []*amqp.Message {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.server.DeadLetters(q.addr)) >= n }, patience, 5*time.Millisecond)
	letters := p.server.DeadLetters(q.addr)
	require.Len(t, letters, n)
	return letters
}
