package amqptest

import (
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// managementNode is where RabbitMQ takes requests as HTTP has them, over two
// links of one name.
const managementNode = "/management"

func isManagement(a *wire.Attach) bool {
	return a.Source != nil && a.Source.Address == managementNode || a.Target != nil && a.Target.Address == managementNode
}

// request is one request at the management node.
type request struct {
	method string
	path   string // without query
	query  string
	body   any
	id     any
}

// requestOf reads a request, nil if it is none.
func requestOf(m *message) *request {
	asked := m.decode()
	if asked.Properties == nil || asked.Properties.To == nil || asked.Properties.Subject == nil {
		return nil
	}
	r := &request{method: *asked.Properties.Subject, body: asked.Value, id: asked.Properties.MessageID}
	r.path, r.query, _ = strings.Cut(*asked.Properties.To, "?")
	return r
}

// manage answers a request: the answer goes over the other link of the pair,
// which must have credit for it.
func (l *link) manage(m *message) {
	var answers *link
	for _, other := range l.ses.links {
		if other.name == l.name && other.role == wire.RoleSender && other.node != nil && other.node.kind == kindManagement {
			answers = other
		}
	}
	if answers == nil || answers.credit == 0 {
		l.ses.end(refusal(amqp.ErrCondPreconditionFailed, "no credit for the response of the management node"))
		return
	}
	r := requestOf(m)
	status, body := "", any(nil)
	if r != nil {
		status, body = l.ses.conn.srv.handle(r)
	}
	if status == "" {
		l.ses.end(refusal(amqp.ErrCondInternalError, "function_clause"))
		return
	}
	answer := &amqp.Message{
		Properties:            &amqp.MessageProperties{CorrelationID: r.id, Subject: &status},
		ApplicationProperties: map[string]any{"http:response": "1.1"},
		Value:                 body,
	}
	if body == nil {
		answer.Value = amqp.Null{}
	}
	stored, err := l.ses.conn.srv.encode([]*amqp.Message{answer})
	if err != nil {
		l.ses.end(refusal(amqp.ErrCondInternalError, err.Error()))
		return
	}
	answers.queue.put(stored[0])
}

// handle does what a request asks for, and returns the status and the body of
// the answer; no status if the request is not known.
func (s *Server) handle(r *request) (status string, body any) {
	segments := strings.Split(strings.TrimPrefix(r.path, "/"), "/")
	name := ""
	if len(segments) > 1 {
		name, _ = unescaped(segments[1])
	}
	switch {
	case segments[0] == "queues" && len(segments) == 2 && name != "":
		switch r.method {
		case "PUT":
			return s.putQueue(name, r.body)
		case "GET":
			return s.getQueue(name)
		case "DELETE":
			return s.deleteQueue(name)
		}
	case segments[0] == "queues" && len(segments) == 3 && segments[2] == "messages" && r.method == "DELETE":
		return s.purgeQueue(name)
	case segments[0] == "exchanges" && len(segments) == 2 && name != "":
		switch r.method {
		case "PUT":
			return s.putExchange(name, r.body)
		case "DELETE":
			return s.deleteExchange(name)
		}
	case segments[0] == "bindings":
		return s.handleBindings(r, segments[1:])
	}
	return "", nil
}
