package amqptest

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

const (
	statusOK       = "200"
	statusCreated  = "201"
	statusDone     = "204"
	statusNotFound = "404"
	statusConflict = "409"
)

// fieldsOf is a map of a request's body by its textual keys.
func fieldsOf(v any) map[string]any {
	r := map[string]any{}
	switch m := v.(type) {
	case map[string]any:
		maps.Copy(r, m)
	case map[any]any:
		for k, v := range m {
			r[fmt.Sprint(k)] = v
		}
	}
	return r
}

// putQueue declares a queue, as often as one likes with the same arguments.
func (s *Server) putQueue(queue string, body any) (string, any) {
	arguments := fieldsOf(fieldsOf(body)["arguments"])
	settings, problem := s.settingsOf(queue, arguments)
	if problem != "" {
		return statusConflict, problem
	}
	n := s.nodes[queueName(queue)]
	if n == nil {
		n = s.makeNode(queueName(queue), kindQueue)
		n.settings, n.arguments = settings, arguments
		_, described := s.getQueue(queue)
		return statusCreated, described
	}
	if n.settings.queueType != settings.queueType {
		return statusConflict, fmt.Sprintf("inequivalent arg 'x-queue-type' for queue '%s' in vhost '/': received '%s' but current is '%s'",
			queue, settings.queueType, n.settings.queueType)
	}
	if n.arguments != nil && !reflect.DeepEqual(n.arguments, arguments) {
		return statusConflict, fmt.Sprintf("inequivalent arguments for queue '%s' in vhost '/'", queue)
	}
	return s.getQueue(queue)
}

// settingsOf reads the arguments of a queue; problem says which is bad.
func (s *Server) settingsOf(queue string, arguments map[string]any) (r nodeSettings, problem string) {
	kind := ClassicQueue
	if v, given := arguments["x-queue-type"]; given {
		switch v {
		case "quorum":
			kind = QuorumQueue
		case "classic":
		default:
			return r, fmt.Sprintf("invalid arg 'x-queue-type' for queue '%s' in vhost '/': %v", queue, v)
		}
	}
	r = s.settings(kind)
	number := func(name string) (int, bool) {
		v, given := arguments[name]
		if !given {
			return 0, false
		}
		n, ok := integer(v)
		if !ok {
			problem = fmt.Sprintf("invalid arg '%s' for queue '%s' in vhost '/': expected integer, got %T", name, queue, v)
		}
		return n, ok
	}
	if n, ok := number("x-delivery-limit"); ok {
		r.maxDeliveries = max(n+1, 0)
	}
	if n, ok := number("x-message-ttl"); ok {
		r.ttl = time.Duration(n) * time.Millisecond
	}
	if n, ok := number("x-max-length"); ok {
		r.maxLength, r.whenFull = n, DropOldestWhenFull
		if overflow, _ := arguments["x-overflow"].(string); strings.HasPrefix(overflow, "reject-publish") {
			r.whenFull = RejectWhenFull
		}
	}
	if exchange, ok := arguments["x-dead-letter-exchange"].(string); ok {
		key, given := arguments["x-dead-letter-routing-key"].(string)
		if !given {
			key = queue
		}
		r.deadLetter = queueName(key)
		if exchange != "" {
			r.deadLetter = rabbitExchanges + url.PathEscape(exchange) + "/" + url.PathEscape(key)
		}
		r.expiry = r.deadLetter
	}
	return r, problem
}

func integer(v any) (int, bool) {
	r := reflect.ValueOf(v)
	switch {
	case r.CanInt():
		return int(r.Int()), true
	case r.CanUint():
		return int(min(r.Uint(), math.MaxInt32)), true
	default:
		return 0, false
	}
}

// String returns "quorum" or "classic".
func (t QueueType) String() string {
	if t == ClassicQueue {
		return "classic"
	}
	return "quorum"
}

func (s *Server) getQueue(queue string) (string, any) {
	n := s.nodes[queueName(queue)]
	if n == nil {
		return statusNotFound, fmt.Sprintf("queue '%s' in vhost '/' not found", queue)
	}
	return statusOK, map[string]any{
		"name": queue, "vhost": "/", "durable": true, "exclusive": false, "auto_delete": false,
		"type": n.settings.queueType.String(), "arguments": map[string]any{"x-queue-type": n.settings.queueType.String()},
		"message_count": uint64(n.len()), "consumer_count": uint32(len(n.queues[0].links)),
	}
}

func (s *Server) deleteQueue(queue string) (string, any) {
	count := uint64(0)
	if n := s.nodes[queueName(queue)]; n != nil {
		count = uint64(n.len())
		n.delete()
		for _, x := range s.exchanges {
			x.bindings = slices.DeleteFunc(x.bindings, func(b binding) bool { return b.queue == n.name })
		}
	}
	return statusOK, map[string]any{"message_count": count}
}

func (s *Server) purgeQueue(queue string) (string, any) {
	n := s.nodes[queueName(queue)]
	if n == nil {
		return statusNotFound, fmt.Sprintf("queue '%s' in vhost '/' not found", queue)
	}
	count := uint64(n.len())
	n.queues[0].drop()
	return statusOK, map[string]any{"message_count": count}
}

func (s *Server) putExchange(name string, body any) (string, any) {
	kind, _ := fieldsOf(body)["type"].(string)
	if !slices.Contains([]string{"direct", "topic", "fanout", "headers"}, kind) {
		return statusConflict, fmt.Sprintf("invalid exchange type '%s'", kind)
	}
	if x := s.exchanges[name]; x != nil && x.kind != kind {
		return statusConflict, fmt.Sprintf("inequivalent arg 'type' for exchange '%s' in vhost '/'", name)
	} else if x == nil {
		s.exchanges[name] = &exchange{srv: s, name: name, kind: kind}
	}
	return statusDone, nil
}

func (s *Server) deleteExchange(name string) (string, any) {
	delete(s.exchanges, name)
	return statusDone, nil
}

// handleBindings makes, lists and deletes bindings. path is what follows
// "/bindings", which names the one to delete.
func (s *Server) handleBindings(r *request, path []string) (string, any) {
	switch {
	case r.method == "POST" && len(path) == 0:
		f := fieldsOf(r.body)
		source, _ := f["source"].(string)
		queue, _ := f["destination_queue"].(string)
		key, _ := f["binding_key"].(string)
		x, n := s.exchanges[source], s.nodes[queueName(queue)]
		if x == nil || n == nil {
			return statusNotFound, fmt.Sprintf("no exchange '%s' or no queue '%s' in vhost '/'", source, queue)
		}
		x.bind(binding{queue: n.name, key: key})
		return statusDone, nil
	case r.method == "GET" && len(path) == 0:
		q, err := url.ParseQuery(r.query)
		if err != nil {
			return "", nil
		}
		return statusOK, s.bindings(q.Get("src"), q.Get("dstq"), q.Get("key"))
	case r.method == "DELETE" && len(path) == 1:
		q, err := url.ParseQuery(strings.ReplaceAll(path[0], ";", "&"))
		if err != nil {
			return "", nil
		}
		if x := s.exchanges[q.Get("src")]; x != nil {
			gone := binding{queue: queueName(q.Get("dstq")), key: q.Get("key")}
			x.bindings = slices.DeleteFunc(x.bindings, func(b binding) bool { return b == gone })
		}
		return statusDone, nil
	}
	return "", nil
}

func (s *Server) bindings(source, queue, key string) []any {
	list := []any{}
	if x := s.exchanges[source]; x != nil && slices.Contains(x.bindings, binding{queue: queueName(queue), key: key}) {
		list = append(list, map[string]any{
			"source": source, "destination_queue": queue, "binding_key": key, "arguments": map[string]any{},
			"location": fmt.Sprintf("/bindings/src=%s;dstq=%s;key=%s;args=", url.PathEscape(source), url.PathEscape(queue), url.PathEscape(key)),
		})
	}
	return list
}
