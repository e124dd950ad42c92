package amqptest

import (
	"strconv"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// describedKind is a composite type of the standard.
type describedKind struct {
	name   string
	fields []string
}

// field is the name of the i-th field.
func (k *describedKind) field(i int) string {
	if i < len(k.fields) {
		return k.fields[i]
	}
	return "field-" + strconv.Itoa(i)
}

// described are the composite types that a frame may have, but for the
// sections of a message. Spec: 2.7, 2.8.14, 3.4, 3.5, 4.5, 5.3.3.
var described = map[uint64]describedKind{
	wire.CodeOpen: {"open", []string{
		"container-id", "hostname", "max-frame-size", "channel-max", "idle-time-out", "outgoing-locales",
		"incoming-locales", "offered-capabilities", "desired-capabilities", "properties",
	}},
	wire.CodeBegin: {"begin", []string{
		"remote-channel", "next-outgoing-id", "incoming-window", "outgoing-window", "handle-max",
		"offered-capabilities", "desired-capabilities", "properties",
	}},
	wire.CodeAttach: {"attach", []string{
		"name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target", "unsettled",
		"incomplete-unsettled", "initial-delivery-count", "max-message-size", "offered-capabilities",
		"desired-capabilities", "properties",
	}},
	wire.CodeFlow: {"flow", []string{
		"next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle", "delivery-count",
		"link-credit", "available", "drain", "echo", "properties",
	}},
	wire.CodeTransfer: {"transfer", []string{
		"handle", "delivery-id", "delivery-tag", "message-format", "settled", "more", "rcv-settle-mode", "state",
		"resume", "aborted", "batchable",
	}},
	wire.CodeDisposition:               {"disposition", []string{"role", "first", "last", "settled", "state", "batchable"}},
	wire.CodeDetach:                    {"detach", []string{"handle", "closed", "error"}},
	wire.CodeEnd:                       {"end", []string{"error"}},
	wire.CodeClose:                     {"close", []string{"error"}},
	wire.CodeError:                     {"error", []string{"condition", "description", "info"}},
	wire.CodeReceived:                  {"received", []string{"section-number", "section-offset"}},
	wire.CodeAccepted:                  {"accepted", nil},
	wire.CodeRejected:                  {"rejected", []string{"error"}},
	wire.CodeReleased:                  {"released", nil},
	wire.CodeModified:                  {"modified", []string{"delivery-failed", "undeliverable-here", "message-annotations"}},
	wire.CodeDeclare:                   {"declare", []string{"global-id"}},
	wire.CodeDischarge:                 {"discharge", []string{"txn-id", "fail"}},
	wire.CodeDeclared:                  {"declared", []string{"txn-id"}},
	wire.CodeCoordinator:               {"coordinator", []string{"capabilities"}},
	wire.CodeDeleteOnClose:             {"delete-on-close", nil},
	wire.CodeDeleteOnNoLinks:           {"delete-on-no-links", nil},
	wire.CodeDeleteOnNoMessages:        {"delete-on-no-messages", nil},
	wire.CodeDeleteOnNoLinksOrMessages: {"delete-on-no-links-or-messages", nil},
	wire.CodeTransactionalState:        {"transactional-state", []string{"txn-id", "outcome"}},
	wire.CodeSource: {"source", []string{
		"address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "distribution-mode",
		"filter", "default-outcome", "outcomes", "capabilities",
	}},
	wire.CodeTarget: {"target", []string{
		"address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties", "capabilities",
	}},
	wire.CodeSASLMechanisms: {"sasl-mechanisms", []string{"sasl-server-mechanisms"}},
	wire.CodeSASLInit:       {"sasl-init", []string{"mechanism", "initial-response", "hostname"}},
	wire.CodeSASLChallenge:  {"sasl-challenge", []string{"challenge"}},
	wire.CodeSASLResponse:   {"sasl-response", []string{"response"}},
	wire.CodeSASLOutcome:    {"sasl-outcome", []string{"code", "additional-data"}},
}
