package amqpflow_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// artemisPeer is ActiveMQ Artemis with the address settings of its test
// instance: everything under "retry3." is a dead letter, in the queue "DLQ",
// after three attempts.
type artemisPeer struct{ where string }

func openArtemis(_ *testing.T, url string) suitePeer { return &artemisPeer{where: url} }

func (p *artemisPeer) url() string          { return p.where }
func (p *artemisPeer) quiet() time.Duration { return 400 * time.Millisecond }

// newQueue attaches once: Artemis makes a missing queue for the capability.
func (p *artemisPeer) newQueue(t *testing.T, o testQueueOptions) *testQueue {
	t.Helper()
	name := uniqueName()
	if o.deadLetters {
		name = "retry3." + name
	}
	settings := map[string]any{}
	if o.deadLetterQueue != nil {
		settings["deadLetterAddress"] = o.deadLetterQueue.name
	}
	if o.small {
		settings["maxSizeMessages"], settings["addressFullMessagePolicy"] = suiteSmall, "FAIL"
	}
	if len(settings) > 0 {
		p.addSettings(t, name, settings)
	}
	q := &testQueue{p: p, name: name, addr: amqpflow.Queue(name), node: name, caps: []string{"queue"}}
	q.put(t)
	t.Cleanup(func() { p.destroy(t, name) })
	return q
}

// addSettings sets what an address has of its own.
func (p *artemisPeer) addSettings(t *testing.T, name string, settings map[string]any) {
	t.Helper()
	encoded, err := json.Marshal(settings)
	require.NoError(t, err)
	p.manage(t, "addAddressSettings", name, string(encoded))
	t.Cleanup(func() { p.manage(t, "removeAddressSettings", name) })
}

// destroy deletes a queue, and its address.
func (p *artemisPeer) destroy(t *testing.T, name string) {
	p.manage(t, "destroyQueue", name, true, true)
}

// manage calls an operation of the broker and returns its result, as JSON.
func (p *artemisPeer) manage(t *testing.T, operation string, arguments ...any) string {
	t.Helper()
	ctx, s := patient(t), rawSession(t, p)
	answers, err := s.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 1})
	require.NoError(t, err)
	requests, err := s.NewSender(ctx, "activemq.management", nil)
	require.NoError(t, err)
	encoded, err := json.Marshal(append([]any{}, arguments...))
	require.NoError(t, err)
	require.NoError(t, requests.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{ReplyTo: new(answers.Address())},
		ApplicationProperties: map[string]any{
			"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation,
		},
		Value: string(encoded),
	}, nil))
	answer, err := answers.Receive(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, true, answer.ApplicationProperties["_AMQ_OperationSucceeded"], "%s %v: %v", operation, arguments, answer.Value)
	result, _ := answer.Value.(string)
	return result
}

// detach deletes the queue under its consumer; the next attach makes it anew.
func (p *artemisPeer) detach(t *testing.T, q *testQueue) bool {
	t.Helper()
	p.manage(t, "destroyQueue", q.name, true, false)
	return true
}

// deleteAddresses deletes addresses without waiting for each answer.
func (p *artemisPeer) deleteAddresses(t *testing.T, names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	requests, err := rawSession(t, p).NewSender(ctx, "activemq.management", nil)
	require.NoError(t, err)
	for i, name := range names {
		arguments, err := json.Marshal([]any{name, true})
		require.NoError(t, err)
		receipt, err := requests.SendWithReceipt(ctx, &amqp.Message{
			ApplicationProperties: map[string]any{
				"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "deleteAddress",
			},
			Value: string(arguments),
		}, nil)
		require.NoError(t, err)
		if i%200 == 0 || i == len(names)-1 {
			_, err = receipt.Wait(ctx)
			require.NoError(t, err)
		}
	}
}

// refusing is an address that exists for topics only.
func (p *artemisPeer) refusing(t *testing.T) amqpflow.Address {
	t.Helper()
	name := uniqueName()
	ctx := patient(t)
	receiver, err := rawSession(t, p).NewReceiver(ctx, name, &amqp.ReceiverOptions{SourceCapabilities: []string{"topic"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = receiver.Close(patient(t)) })
	return amqpflow.Queue(name)
}

// refusingSenders has no address before the name of its queue; Artemis makes
// whatever else is missing.
func (p *artemisPeer) refusingSenders(*testing.T) amqpflow.Address {
	return amqpflow.Queue("::" + uniqueName())
}

func (p *artemisPeer) unroutable(*testing.T) amqpflow.Address { return "" }

// dead is the broker's dead letter queue.
func (p *artemisPeer) dead(q *testQueue) *testQueue {
	return &testQueue{p: p, name: q.name, node: "DLQ", caps: []string{"queue"}}
}

func (p *artemisPeer) deadLetters(t *testing.T, q *testQueue, n int) []*amqp.Message {
	t.Helper()
	return p.dead(q).take(t, n, amqp.NewSelectorFilter(ownerProperty+"='"+q.name+"'"))
}
