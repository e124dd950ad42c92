package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"
)

func (rawSide) reply(ctx context.Context, p place, s scenario, m *meter) error {
	conn, session, err := p.dial(ctx)
	if err != nil {
		return err
	}
	r, err := newResponder(ctx, session, p, s)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	err = share(ctx, s, func(ctx context.Context) error {
		if err := r.answerOne(ctx); err != nil {
			return err
		}
		m.tick()
		return nil
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return errors.Join(r.requests.Close(ctx), r.replies.Close(ctx), conn.Close())
}

// responder answers requests. It knows beforehand where they want their
// replies, which spares it a table of senders.
type responder struct {
	requests *amqp.Receiver
	replies  *amqp.Sender
	body     []byte
}

func newResponder(ctx context.Context, session *amqp.Session, p place, s scenario) (*responder, error) {
	requests, err := session.NewReceiver(ctx, p.node, &amqp.ReceiverOptions{
		Credit: int32(s.credit), SourceCapabilities: p.caps,
	})
	if err != nil {
		return nil, err
	}
	replies, err := session.NewSender(ctx, p.reply, nil)
	if err != nil {
		return nil, err
	}
	return &responder{requests: requests, replies: replies, body: bytes.Repeat([]byte{'x'}, bodySize)}, nil
}

// answerOne takes a request, sends its reply, and accepts it once the reply is
// confirmed.
func (r *responder) answerOne(ctx context.Context) error {
	msg, err := r.requests.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if err := checkSize(msg.GetData()); err != nil {
		return err
	}
	if p := msg.Properties; p == nil || p.ReplyTo == nil || *p.ReplyTo != r.replies.Address() {
		return fmt.Errorf("a request without our reply-to: %+v", p)
	}
	answer := outgoing(r.body)
	answer.Properties.CorrelationID = msg.Properties.MessageID
	if err := r.replies.Send(ctx, answer, nil); err != nil {
		return err
	}
	return r.requests.AcceptMessage(ctx, msg)
}
