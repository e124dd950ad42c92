package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/Azure/go-amqp"
)

// artemisQueues makes queues by attaching to them and deletes them over
// Artemis's management address.
type artemisQueues struct {
	session   *amqp.Session
	requests  *amqp.Sender
	responses *amqp.Receiver
}

func newArtemisQueues(ctx context.Context, session *amqp.Session) (*artemisQueues, error) {
	const node = "activemq.management"
	requests, err := session.NewSender(ctx, node, nil)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", node, err)
	}
	responses, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 10})
	if err != nil {
		return nil, fmt.Errorf("attach to a dynamic address: %w", err)
	}
	return &artemisQueues{session: session, requests: requests, responses: responses}, nil
}

func (q *artemisQueues) node(name string) string { return name }
func (q *artemisQueues) capabilities() []string  { return []string{"queue"} }

// create attaches once: Artemis makes a missing queue for the capability
// "queue", and a message sent to it by then cannot be lost.
func (q *artemisQueues) create(ctx context.Context, name string) error {
	sender, err := q.session.NewSender(ctx, name, &amqp.SenderOptions{TargetCapabilities: q.capabilities()})
	if err != nil {
		return err
	}
	return sender.Close(ctx)
}

// remove asks for the queue to be destroyed, consumers and all.
func (q *artemisQueues) remove(ctx context.Context, name string) error {
	arguments, err := json.Marshal([]any{name, true})
	if err != nil {
		return err
	}
	err = q.requests.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{ReplyTo: new(q.responses.Address())},
		ApplicationProperties: map[string]any{
			"_AMQ_ResourceName":  "broker",
			"_AMQ_OperationName": "destroyQueue",
		},
		Value: string(arguments),
	}, nil)
	if err != nil {
		return err
	}
	answer, err := q.responses.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if err := q.responses.AcceptMessage(ctx, answer); err != nil {
		return err
	}
	if ok, _ := answer.ApplicationProperties["_AMQ_OperationSucceeded"].(bool); !ok {
		return fmt.Errorf("destroyQueue %s was refused: %v", name, answer.Value)
	}
	return nil
}
