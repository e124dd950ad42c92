package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

// bodySize is the size of every message body.
const bodySize = 512

// order is the document of consume/json: strings, numbers, a time, a nested
// struct and a list, as services send them.
type order struct {
	ID       string    `json:"id"`
	Customer customer  `json:"customer"`
	Lines    []line    `json:"lines"`
	Total    float64   `json:"total"`
	Currency string    `json:"currency"`
	Express  bool      `json:"express"`
	Placed   time.Time `json:"placed"`
	Note     string    `json:"note"`
}

type customer struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

type line struct {
	SKU      string  `json:"sku"`
	Quantity int     `json:"quantity"`
	Price    float64 `json:"price"`
}

// orderBody is an order of exactly bodySize bytes.
func orderBody() []byte {
	o := order{
		ID:       "7d3f5b1e-94c2-4c8a-9f1d-0a6b7c8d9e0f",
		Customer: customer{ID: 4711, Name: "Ada Lovelace", Email: "ada@example.com"},
		Lines: []line{
			{SKU: "BOOK-0042", Quantity: 1, Price: 39.9},
			{SKU: "PEN-0007", Quantity: 12, Price: 1.25},
			{SKU: "INK-0011", Quantity: 2, Price: 8.5},
		},
		Total: 71.9, Currency: "EUR", Express: true,
		Placed: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	o.Note = strings.Repeat("n", bodySize-len(marshal(o)))
	return marshal(o)
}

func marshal(o order) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // an order has nothing that JSON cannot hold
	}
	return b
}

// message is what a consuming scenario receives, from the source and from a
// broker alike: a header and one data section, and for JSON the properties
// that say so.
func message(asJSON bool) *amqp.Message {
	m := &amqp.Message{Header: &amqp.MessageHeader{Durable: true, Priority: 4}}
	if !asJSON {
		m.Data = [][]byte{bytes.Repeat([]byte{'x'}, bodySize)}
		return m
	}
	m.Data = [][]byte{orderBody()}
	m.Properties = &amqp.MessageProperties{MessageID: randomUUID(), ContentType: new("application/json")}
	return m
}

// request is what a reply scenario receives.
func request(replyTo string) *amqp.Message {
	m := message(false)
	m.Properties = &amqp.MessageProperties{MessageID: randomUUID(), ReplyTo: &replyTo}
	return m
}

// randomUUID is a version 4 UUID, which both publishers put on each message.
func randomUUID() amqp.UUID {
	var id amqp.UUID
	_, _ = rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
