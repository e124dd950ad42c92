package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"
)

const (
	quorum  queueKind = "quorum"
	classic queueKind = "classic"
)

// newRabbitMQ is a RabbitMQ whose queues are of one kind.
func newRabbitMQ(b broker, kind queueKind) *server {
	return &server{
		broker: b, name: "rabbitmq-" + string(kind), kind: kind,
		node:   func(queue string) string { return "/queues/" + url.PathEscape(queue) },
		dead:   func(queue string) string { return queue + "-dead" },
		making: declare, removing: undeclare,
	}
}

// declare makes a queue and its dead-letter queue.
func declare(ctx context.Context, s *server, queue string) error {
	return manage(ctx, s, func(m *management) error {
		if err := m.request(ctx, "PUT", s.node(s.dead(queue)), map[string]any{
			"durable": true, "arguments": map[string]any{"x-queue-type": "classic"},
		}); err != nil {
			return err
		}
		arguments := map[string]any{
			"x-queue-type": string(s.kind), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.dead(queue),
		}
		if s.limit > 0 {
			arguments["x-max-length"], arguments["x-overflow"] = int64(s.limit), "reject-publish"
		}
		return m.request(ctx, "PUT", s.node(queue), map[string]any{"durable": true, "arguments": arguments})
	})
}

func undeclare(ctx context.Context, s *server, queue string) error {
	return manage(ctx, s, func(m *management) error {
		if err := m.request(ctx, "DELETE", s.node(queue), amqp.Null{}); err != nil {
			return err
		}
		return m.request(ctx, "DELETE", s.node(s.dead(queue)), amqp.Null{})
	})
}

// management is RabbitMQ's paired links of that name.
type management struct {
	requests *amqp.Sender
	answers  *amqp.Receiver
}

// manage does it again where a request came before the credit for its answer
// did: RabbitMQ ends the session then, and go-amqp gives no sign of when that
// credit has left. Requests may be made twice.
func manage(ctx context.Context, s *server, do func(*management) error) error {
	for {
		err := s.with(ctx, func(session *amqp.Session) error {
			m, err := openManagement(ctx, session)
			if err != nil {
				return err
			}
			return do(m)
		})
		if refused, ok := errors.AsType[*amqp.Error](err); !ok || refused.Condition != amqp.ErrCondPreconditionFailed {
			return err
		}
	}
}

// openManagement attaches the answers first, for their credit.
func openManagement(ctx context.Context, session *amqp.Session) (*management, error) {
	const node, link = "/management", "chaos"
	properties := map[string]any{"paired": true}
	answers, err := session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
		Name: link, TargetAddress: node, Properties: properties, Credit: 10,
	})
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", node, err)
	}
	requests, err := session.NewSender(ctx, node, &amqp.SenderOptions{
		Name: link, SourceAddress: node, Properties: properties, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", node, err)
	}
	return &management{requests: requests, answers: answers}, nil
}

// request waits for its answer, whose subject is an HTTP status.
func (m *management) request(ctx context.Context, verb, node string, value any) error {
	err := m.requests.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: verb + node, To: &node, Subject: &verb, ReplyTo: new("$me")},
		Value:      value,
	}, nil)
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, node, err)
	}
	answer, err := m.answers.Receive(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, node, err)
	}
	if err := m.answers.AcceptMessage(ctx, answer); err != nil {
		return fmt.Errorf("%s %s: %w", verb, node, err)
	}
	if p := answer.Properties; p == nil || p.Subject == nil || !strings.HasPrefix(*p.Subject, "2") {
		return fmt.Errorf("%s %s was refused: %v", verb, node, answer.Value)
	}
	return nil
}
