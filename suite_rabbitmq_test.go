package amqpflow_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// rabbitPeer is RabbitMQ 4 with quorum queues.
type rabbitPeer struct{ where string }

func openRabbitMQ(_ *testing.T, url string) suitePeer { return &rabbitPeer{where: url} }

func (p *rabbitPeer) url() string          { return p.where }
func (p *rabbitPeer) quiet() time.Duration { return 400 * time.Millisecond }

func (p *rabbitPeer) newQueue(t *testing.T, o testQueueOptions) *testQueue {
	t.Helper()
	q := p.queue(uniqueName())
	arguments := map[string]any{"x-queue-type": "quorum"}
	if o.deadLetters {
		dead := p.deadQueue(q)
		p.declare(t, dead, map[string]any{"x-queue-type": "quorum"})
		arguments["x-delivery-limit"] = int64(suiteAttempts - 1)
		arguments["x-dead-letter-exchange"] = ""
		arguments["x-dead-letter-routing-key"] = dead.name
	}
	if o.deadLetterQueue != nil {
		arguments["x-dead-letter-exchange"] = ""
		arguments["x-dead-letter-routing-key"] = o.deadLetterQueue.name
	}
	if o.small {
		arguments["x-max-length"], arguments["x-overflow"] = int64(suiteSmall), "reject-publish"
	}
	p.declare(t, q, arguments)
	return q
}

func (p *rabbitPeer) queue(name string) *testQueue {
	return &testQueue{p: p, name: name, addr: amqpflow.Queue(name), node: "/queues/" + url.PathEscape(name)}
}

func (p *rabbitPeer) deadQueue(q *testQueue) *testQueue { return p.queue(q.name + "-dead") }

func (p *rabbitPeer) declare(t *testing.T, q *testQueue, arguments map[string]any) {
	t.Helper()
	p.manage(t, "PUT", q.node, map[string]any{"durable": true, "arguments": arguments})
	t.Cleanup(func() { p.manage(t, "DELETE", q.node, amqp.Null{}) })
}

// manage sends one request over the management node, again where it came before
// the credit for its answer did: go-amqp gives no sign when that has left.
func (p *rabbitPeer) manage(t *testing.T, method, node string, body any) {
	t.Helper()
	for {
		err := p.request(t, method, node, body)
		var refused *amqp.Error
		if errors.As(err, &refused) && refused.Condition == amqp.ErrCondPreconditionFailed {
			continue
		}
		require.NoError(t, err)
		return
	}
}

// request needs two links of one name.
func (p *rabbitPeer) request(t *testing.T, method, node string, body any) error {
	t.Helper()
	const management, name = "/management", "amqpflow-suite"
	ctx, s, paired := patient(t), rawSession(t, p), map[string]any{"paired": true}
	answers, err := s.NewReceiver(ctx, management, &amqp.ReceiverOptions{
		Name: name, TargetAddress: management, Properties: paired, Credit: 1,
	})
	require.NoError(t, err)
	requests, err := s.NewSender(ctx, management, &amqp.SenderOptions{
		Name: name, SourceAddress: management, Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	require.NoError(t, err)
	err = requests.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: method, To: &node, Subject: &method, ReplyTo: new("$me")},
		Value:      body,
	}, nil)
	if err != nil {
		return err
	}
	answer, err := answers.Receive(ctx, nil)
	if err != nil {
		return err
	}
	require.NotNil(t, answer.Properties)
	require.NotNil(t, answer.Properties.Subject)
	require.True(t, strings.HasPrefix(*answer.Properties.Subject, "2"), "%s %s: %v", method, node, answer.Value)
	return nil
}

// refusing is a queue that does not exist: attaching makes none.
func (p *rabbitPeer) refusing(*testing.T) amqpflow.Address { return amqpflow.Queue(uniqueName()) }

func (p *rabbitPeer) refusingSenders(t *testing.T) amqpflow.Address { return p.refusing(t) }

// unroutable is a key of an exchange that always is there, with nothing bound
// to it.
func (p *rabbitPeer) unroutable(*testing.T) amqpflow.Address {
	return amqpflow.Raw("/exchanges/amq.direct/none-" + uniqueName())
}

// detach is nothing that an operator of RabbitMQ can do to a link, short of
// deleting its queue.
func (p *rabbitPeer) detach(*testing.T, *testQueue) bool { return false }

func (p *rabbitPeer) deadLetters(t *testing.T, q *testQueue, n int) []*amqp.Message {
	t.Helper()
	return p.deadQueue(q).take(t, n)
}
