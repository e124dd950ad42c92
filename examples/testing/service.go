package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/amqpflow/amqpflow"
)

type Order struct {
	ID    string `json:"id"`
	Item  string `json:"item"`
	Count int    `json:"count"`
}

type Invoice struct {
	Order string `json:"order"`
	Total int    `json:"total"`
}

// Service writes an invoice for every order.
type Service struct {
	broker   *amqpflow.Broker
	invoices amqpflow.Address
	prices   map[string]int
}

// NewService wires the service. All it needs is a broker, connected or not.
func NewService(b *amqpflow.Broker) *Service {
	s := &Service{
		broker:   b,
		invoices: setting("INVOICES", "invoices"),
		prices:   map[string]int{"lamp": 1900},
	}
	amqpflow.Subscribe(b, setting("ORDERS", "orders"), s.invoice)
	return s
}

// Healthy is what the service answers its supervisor.
func (s *Service) Healthy() bool { return s.broker.Ready() == nil }

// setting is what the environment says, as configuration often does.
func setting(name string, otherwise amqpflow.Address) amqpflow.Address {
	return cmp.Or(amqpflow.Address(os.Getenv(name)), otherwise)
}

// invoice rejects an order for an item that has no price.
func (s *Service) invoice(ctx context.Context, m *amqpflow.Message[Order]) error {
	price, ok := s.prices[m.Body.Item]
	if !ok {
		return amqpflow.Reject(fmt.Errorf("no price for %q", m.Body.Item))
	}
	invoice := Invoice{Order: m.Body.ID, Total: price * m.Body.Count}
	return s.broker.Publisher().Publish(ctx, s.invoices, invoice, &amqpflow.PublishOptions{CorrelationID: m.Body.ID})
}
