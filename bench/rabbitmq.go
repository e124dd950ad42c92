package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"
)

// rabbitQueues makes queues over RabbitMQ's management node, which is a pair
// of links of one name.
type rabbitQueues struct {
	requests  *amqp.Sender
	responses *amqp.Receiver
	queueType string
}

// newRabbitQueues begins a session of its own, and another where a request came
// before the credit for its answer did: RabbitMQ ends the session then, and
// go-amqp gives no sign of when that credit has left.
func newRabbitQueues(ctx context.Context, conn *amqp.Conn, queueType string) (*rabbitQueues, error) {
	for {
		q := &rabbitQueues{queueType: queueType}
		if err := q.attach(ctx, conn); err != nil {
			return nil, err
		}
		err := q.remove(ctx, "amqpflow-bench-none")
		if refused, ok := errors.AsType[*amqp.Error](err); !ok || refused.Condition != amqp.ErrCondPreconditionFailed {
			return q, err
		}
	}
}

// attach opens the answers first, for their credit.
func (q *rabbitQueues) attach(ctx context.Context, conn *amqp.Conn) error {
	const node, name = "/management", "amqpflow-bench"
	paired := map[string]any{"paired": true}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a session: %w", err)
	}
	q.responses, err = session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
		Name: name, TargetAddress: node, Properties: paired, Credit: 10,
	})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", node, err)
	}
	q.requests, err = session.NewSender(ctx, node, &amqp.SenderOptions{
		Name: name, SourceAddress: node, Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", node, err)
	}
	return nil
}

func (q *rabbitQueues) node(name string) string { return "/queues/" + url.PathEscape(name) }
func (q *rabbitQueues) capabilities() []string  { return nil }

func (q *rabbitQueues) create(ctx context.Context, name string) error {
	return q.request(ctx, "PUT", name, map[string]any{
		"durable":   true,
		"arguments": map[string]any{"x-queue-type": q.queueType},
	})
}

func (q *rabbitQueues) remove(ctx context.Context, name string) error {
	return q.request(ctx, "DELETE", name, amqp.Null{}) // an absent body would be refused
}

// request sends one and waits for its answer; the answer's subject is an HTTP
// status.
func (q *rabbitQueues) request(ctx context.Context, method, name string, body any) error {
	err := q.requests.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{
			MessageID: method + name, To: new(q.node(name)), Subject: &method, ReplyTo: new("$me"),
		},
		Value: body,
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
	if p := answer.Properties; p == nil || p.Subject == nil || !strings.HasPrefix(*p.Subject, "2") {
		return fmt.Errorf("%s %s was refused: %v", method, name, answer.Value)
	}
	return nil
}
