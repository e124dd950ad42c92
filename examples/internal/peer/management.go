package peer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"
)

// management declares and deletes queues over AMQP itself, in the way of the
// broker at the other end.
type management struct {
	conn     *amqp.Conn
	session  *amqp.Session
	rabbit   bool
	requests *amqp.Sender
	answers  *amqp.Receiver
}

func dialManagement(ctx context.Context, url string) (*management, error) {
	conn, err := amqp.Dial(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	product, _ := conn.Properties()["product"].(string)
	m := &management{conn: conn, rabbit: product == "RabbitMQ"}
	if err := m.open(ctx); err != nil {
		return nil, fmt.Errorf("%w (and closing: %w)", err, conn.Close())
	}
	return m, nil
}

// open attaches, and once more where RabbitMQ had a request before the credit
// for its answer: it ends the session then, and go-amqp gives no sign of when
// that credit has left.
func (m *management) open(ctx context.Context) error {
	for {
		err := m.attach(ctx)
		if err != nil || !m.rabbit {
			return err
		}
		err = m.remove(ctx, "example-none")
		if refused, ok := errors.AsType[*amqp.Error](err); !ok || refused.Condition != amqp.ErrCondPreconditionFailed {
			return err
		}
	}
}

// attach opens the links: a pair of one name on RabbitMQ, an address for the
// answers that the broker makes up elsewhere.
func (m *management) attach(ctx context.Context) (err error) {
	node := "activemq.management"
	out := &amqp.SenderOptions{}
	in := &amqp.ReceiverOptions{DynamicAddress: true, Credit: 10}
	source := ""
	if m.rabbit {
		node, source = "/management", "/management"
		paired := map[string]any{"paired": true}
		out = &amqp.SenderOptions{
			Name: "example", SourceAddress: node, Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
		}
		in = &amqp.ReceiverOptions{Name: "example", TargetAddress: node, Properties: paired, Credit: 10}
	}
	if m.session, err = m.conn.NewSession(ctx, nil); err != nil {
		return err
	}
	// Answers first: RabbitMQ refuses a request before it has credit for one.
	if m.answers, err = m.session.NewReceiver(ctx, source, in); err != nil {
		return err
	}
	m.requests, err = m.session.NewSender(ctx, node, out)
	return err
}

func (m *management) declare(ctx context.Context, queue string) error {
	if m.rabbit {
		return m.http(ctx, "PUT", queue, map[string]any{"arguments": map[string]any{"x-queue-type": "quorum"}})
	}
	// A missing queue is made for whoever attaches with the capability.
	link, err := m.session.NewSender(ctx, queue, &amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
	if err != nil {
		return err
	}
	return link.Close(ctx)
}

func (m *management) remove(ctx context.Context, queue string) error {
	if m.rabbit {
		return m.http(ctx, "DELETE", queue, amqp.Null{})
	}
	answer, err := m.request(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{ReplyTo: new(m.answers.Address())},
		ApplicationProperties: map[string]any{
			"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "destroyQueue",
		},
		Value: fmt.Sprintf("[%q, true]", queue),
	})
	if err != nil {
		return err
	}
	if done, _ := answer.ApplicationProperties["_AMQ_OperationSucceeded"].(bool); !done {
		return fmt.Errorf("delete %s: %v", queue, answer.Value)
	}
	return nil
}

// http is RabbitMQ's management: a method, a path, and a status as the subject.
func (m *management) http(ctx context.Context, method, queue string, body any) error {
	answer, err := m.request(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{
			MessageID: method, To: new("/queues/" + url.PathEscape(queue)), Subject: &method, ReplyTo: new("$me"),
		},
		Value: body,
	})
	if err != nil {
		return err
	}
	if p := answer.Properties; p == nil || p.Subject == nil || !strings.HasPrefix(*p.Subject, "2") {
		return fmt.Errorf("%s %s: %v", method, queue, answer.Value)
	}
	return nil
}

func (m *management) request(ctx context.Context, request *amqp.Message) (*amqp.Message, error) {
	if err := m.requests.Send(ctx, request, nil); err != nil {
		return nil, err
	}
	answer, err := m.answers.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	return answer, m.answers.AcceptMessage(ctx, answer)
}

func (m *management) close(context.Context) error { return m.conn.Close() }
