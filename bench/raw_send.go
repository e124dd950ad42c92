package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"
)

// keepInFlight sends total messages from one goroutine, with at most n
// unconfirmed: before each further one it waits for the oldest.
func keepInFlight[R any](total, n int, send func() (R, error), wait func(R) error) error {
	receipts := make([]R, n)
	for i := range total + n {
		slot := i % n
		if i >= n && i-n < total {
			if err := wait(receipts[slot]); err != nil {
				return err
			}
		}
		if i < total {
			var err error
			if receipts[slot], err = send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// accepted waits for a send to be confirmed.
func accepted(ctx context.Context, receipt amqp.SendReceipt) error {
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	if _, ok := state.(*amqp.StateAccepted); !ok {
		return fmt.Errorf("a message was not accepted: %v", state)
	}
	return nil
}

func (rawSide) pipeline(ctx context.Context, p place, s scenario, m *meter) error {
	conn, session, err := p.dial(ctx)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, p.node, &amqp.SenderOptions{TargetCapabilities: p.caps})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	body := bytes.Repeat([]byte{'x'}, bodySize)
	err = keepInFlight(s.warm+s.count, s.inFlight,
		func() (amqp.SendReceipt, error) { return sender.SendWithReceipt(ctx, outgoing(body), nil) },
		func(r amqp.SendReceipt) error {
			if err := accepted(ctx, r); err != nil {
				return err
			}
			m.tick()
			return nil
		},
	)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return errors.Join(sender.Close(ctx), conn.Close())
}
