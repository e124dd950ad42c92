package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// rawSide is the loop one writes with go-amqp alone.
type rawSide struct{}

func (rawSide) consume(ctx context.Context, p place, s scenario, m *meter) error {
	conn, session, err := p.dial(ctx)
	if err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, p.node, &amqp.ReceiverOptions{
		Credit: int32(s.credit), SourceCapabilities: p.caps,
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	switch {
	case s.lanes > 0:
		err = receiveInLanes(ctx, receiver, s, m)
	case s.batch > 0:
		err = receiveBatches(ctx, receiver, s, m)
	default:
		err = share(ctx, s, func(ctx context.Context) error {
			if err := receiveOne(ctx, receiver, s.json); err != nil {
				return err
			}
			m.tick()
			return nil
		})
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return errors.Join(receiver.Close(ctx), conn.Close())
}

// receiveOne takes one message, uses its body and accepts it.
func receiveOne(ctx context.Context, receiver *amqp.Receiver, asJSON bool) error {
	msg, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return useAndAccept(ctx, receiver, msg, asJSON)
}

func useAndAccept(ctx context.Context, receiver *amqp.Receiver, msg *amqp.Message, asJSON bool) error {
	if err := use(msg.GetData(), asJSON); err != nil {
		return err
	}
	return receiver.AcceptMessage(ctx, msg)
}

// use is what both sides' services do with a body.
func use(body []byte, asJSON bool) error {
	if !asJSON {
		return checkSize(body)
	}
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	return checkOrder(&o)
}

// checkSize fails a run in which something other than our bodies arrives.
func checkSize(body []byte) error {
	if len(body) != bodySize {
		return fmt.Errorf("a body of %d bytes, want %d", len(body), bodySize)
	}
	return nil
}

// checkOrder does the same for a decoded one.
func checkOrder(o *order) error {
	if o.Customer.ID != 4711 || len(o.Lines) != 3 {
		return fmt.Errorf("order %q is not the one that was sent", o.ID)
	}
	return nil
}

func (rawSide) publish(ctx context.Context, p place, s scenario, m *meter) error {
	conn, session, err := p.dial(ctx)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, p.node, &amqp.SenderOptions{TargetCapabilities: p.caps})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	body := bytes.Repeat([]byte{'x'}, bodySize)
	for range s.warm + s.count {
		begun := time.Now()
		if err := sender.Send(ctx, outgoing(body), nil); err != nil {
			return errors.Join(err, conn.Close())
		}
		m.time(begun)
	}
	return errors.Join(sender.Close(ctx), conn.Close())
}

// outgoing is the message amqpflow makes of a []byte: durable, with a message
// id and a content type.
func outgoing(body []byte) *amqp.Message {
	return &amqp.Message{
		Header:     &amqp.MessageHeader{Durable: true, Priority: 4},
		Properties: &amqp.MessageProperties{MessageID: randomUUID(), ContentType: new("application/octet-stream")},
		Data:       [][]byte{body},
	}
}
