package main

import (
	"context"
	"crypto/tls"

	"github.com/Azure/go-amqp"
)

// peer is what both sides talk to.
type peer interface {
	// place makes what one run of one side needs: for a consumer, a node
	// with enough messages.
	place(ctx context.Context, s scenario) (place, error)
	broker() bool // a real one, as opposed to the source
	describe() string
	close() error
}

// place is where one run of one side works.
type place struct {
	url    string
	tls    *tls.Config                 // for amqps
	queue  string                      // its name, for amqpflow.Queue
	node   string                      // its address on the wire, for go-amqp
	caps   []string                    // of the terminus, for go-amqp
	reply  string                      // where replies go, on the wire: a request's reply-to
	remove func(context.Context) error // undoes place
}

// dial opens a raw connection and a session. Closing the connection ends both.
func (p place) dial(ctx context.Context) (*amqp.Conn, *amqp.Session, error) {
	conn, err := amqp.Dial(ctx, p.url, &amqp.ConnOptions{TLSConfig: p.tls})
	if err != nil {
		return nil, nil, err
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close() // the session's error says more
		return nil, nil, err
	}
	return conn, session, nil
}
