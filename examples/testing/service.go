package main

import (
	"context"
	"fmt"

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

// Register wires the service: every order becomes an invoice, and one for an
// item without a price is rejected.
func Register(b *amqpflow.Broker, orders, invoices amqpflow.Address, prices map[string]int) {
	amqpflow.Subscribe(b, orders, func(ctx context.Context, m *amqpflow.Message[Order]) error {
		price, ok := prices[m.Body.Item]
		if !ok {
			return amqpflow.Reject(fmt.Errorf("no price for %q", m.Body.Item))
		}
		invoice := Invoice{Order: m.Body.ID, Total: price * m.Body.Count}
		return b.Publisher().Publish(ctx, invoices, invoice, &amqpflow.PublishOptions{CorrelationID: m.Body.ID})
	})
}
