package main

import (
	"github.com/amqpflow/amqpflow/internal/wire"
)

// connected stands for the frame that a new connection is.
const connected uint64 = 1 << 32

// step is a moment in the life of a connection.
type step struct {
	name   string
	dir    direction
	header bool
	code   uint64
	role   wire.Role // of an attach: the client's link
	stop   bool      // it comes with Shutdown
}

// steps are the 25 at which a connection is reset.
var steps = []step{
	{name: "connect", dir: out, header: true, code: connected},
	{name: "sasl header", dir: out, header: true, code: uint64(wire.ProtoSASL)},
	{name: "sasl header back", dir: in, header: true, code: uint64(wire.ProtoSASL)},
	{name: "mechanisms", dir: in, code: wire.CodeSASLMechanisms},
	{name: "init", dir: out, code: wire.CodeSASLInit},
	{name: "outcome", dir: in, code: wire.CodeSASLOutcome},
	{name: "header", dir: out, header: true, code: uint64(wire.ProtoAMQP)},
	{name: "header back", dir: in, header: true, code: uint64(wire.ProtoAMQP)},
	{name: "open", dir: out, code: wire.CodeOpen},
	{name: "open back", dir: in, code: wire.CodeOpen},
	{name: "begin", dir: out, code: wire.CodeBegin},
	{name: "begin back", dir: in, code: wire.CodeBegin},
	{name: "attach receiver", dir: out, code: wire.CodeAttach, role: wire.RoleReceiver},
	{name: "attach receiver back", dir: in, code: wire.CodeAttach, role: wire.RoleReceiver},
	{name: "attach sender", dir: out, code: wire.CodeAttach, role: wire.RoleSender},
	{name: "attach sender back", dir: in, code: wire.CodeAttach, role: wire.RoleSender},
	{name: "flow", dir: out, code: wire.CodeFlow},
	{name: "flow back", dir: in, code: wire.CodeFlow},
	{name: "transfer", dir: out, code: wire.CodeTransfer},
	{name: "transfer back", dir: in, code: wire.CodeTransfer},
	{name: "disposition", dir: out, code: wire.CodeDisposition},
	{name: "disposition back", dir: in, code: wire.CodeDisposition},
	{name: "detach", dir: out, code: wire.CodeDetach, stop: true},
	{name: "end", dir: out, code: wire.CodeEnd, stop: true},
	{name: "close", dir: out, code: wire.CodeClose, stop: true},
}

// matches says whether f is the step's frame.
func (s step) matches(f frame) bool {
	if f.dir != s.dir || f.header != s.header || f.code != s.code {
		return false
	}
	if s.code != wire.CodeAttach || s.header {
		return true
	}
	var a wire.Attach
	if a.Decode(f.body) != nil {
		return false
	}
	link := a.Role
	if f.dir == in { // the broker is the other end of it
		link = !link
	}
	return link == s.role
}
