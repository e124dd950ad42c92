package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

// newArtemis is an ActiveMQ Artemis, whose dead letters of every queue are in
// the queue DLQ.
func newArtemis(b broker) *server {
	return &server{
		broker: b, name: "artemis", caps: []string{"queue"},
		node:   func(queue string) string { return queue },
		dead:   func(string) string { return "DLQ" },
		making: attachOnce, removing: func(context.Context, *server, string) error { return nil },
	}
}

// attachOnce makes a queue: Artemis creates a missing one for the capability
// "queue".
func attachOnce(ctx context.Context, s *server, queue string) error {
	return s.with(ctx, func(session *amqp.Session) error {
		sender, err := session.NewSender(ctx, s.node(queue), &amqp.SenderOptions{TargetCapabilities: s.caps})
		if err != nil {
			return fmt.Errorf("create %s: %w", queue, err)
		}
		return sender.Close(ctx)
	})
}
