package amqptest

import (
	"slices"
)

// Nodes returns the names on the wire, in order, of the queues and topics that
// exist: those that clients named, those of Put, and dynamic ones.
// amqpflow.Raw of a name is its address.
func (s *Server) Nodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, n := range s.nodes {
		if n.kind != kindExchange {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
