package amqptest

import (
	"fmt"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// rule is one rule of the standard that a client can break: its name, its
// section, and the condition with which the connection is closed.
type rule struct {
	name    string
	section string
	cond    amqp.ErrCond
}

var (
	ruleProtocolHeader  = rule{"protocol-header", "2.2", amqp.ErrCondFramingError}
	ruleFrame           = rule{"frame", "2.3.1", amqp.ErrCondFramingError}
	ruleFrameSize       = rule{"max-frame-size", "2.7.1", amqp.ErrCondFramingError}
	rulePerformative    = rule{"performative", "2.7", amqp.ErrCondDecodeError}
	ruleSASL            = rule{"sasl", "5.3", amqp.ErrCondFramingError}
	ruleOpenFirst       = rule{"open-first", "2.4.1", amqp.ErrCondIllegalState}
	ruleOpen            = rule{"open", "2.7.1", amqp.ErrCondInvalidField}
	ruleAfterClose      = rule{"frame-after-close", "2.4.6", amqp.ErrCondFramingError}
	ruleIdle            = rule{"idle-timeout", "2.4.5", amqp.ErrCondResourceLimitExceeded}
	ruleChannel         = rule{"channel", "2.5", amqp.ErrCondNotAllowed}
	ruleChannelMax      = rule{"channel-max", "2.7.1", amqp.ErrCondFramingError}
	ruleSessionID       = rule{"session-id", "2.5.6", amqp.ErrCondInvalidField}
	ruleSessionFlow     = rule{"session-flow", "2.7.4", amqp.ErrCondInvalidField}
	ruleSessionWindow   = rule{"session-window", "2.5.6", amqp.ErrCondWindowViolation}
	ruleHandle          = rule{"handle", "2.6.2", amqp.ErrCondUnattachedHandle}
	ruleHandleInUse     = rule{"handle-in-use", "2.7.3", amqp.ErrCondHandleInUse}
	ruleHandleMax       = rule{"handle-max", "2.7.2", amqp.ErrCondFramingError}
	ruleAttach          = rule{"attach", "2.7.3", amqp.ErrCondInvalidField}
	ruleLinkCredit      = rule{"link-credit", "2.6.7", amqp.ErrCondTransferLimitExceeded}
	ruleDeliveryCount   = rule{"delivery-count", "2.6.7", amqp.ErrCondInvalidField}
	ruleDirection       = rule{"transfer-direction", "2.7.5", amqp.ErrCondErrantLink}
	ruleFirstTransfer   = rule{"first-transfer", "2.7.5", amqp.ErrCondInvalidField}
	ruleDeliveryID      = rule{"delivery-id", "2.7.5", amqp.ErrCondInvalidField}
	ruleContinuation    = rule{"continuation", "2.7.5", amqp.ErrCondInvalidField}
	ruleSettleMode      = rule{"settle-mode", "2.8.2", amqp.ErrCondInvalidField}
	ruleResume          = rule{"resume", "2.6.13", amqp.ErrCondInvalidField}
	ruleMessage         = rule{"message", "3.2", amqp.ErrCondDecodeError}
	ruleDisposition     = rule{"disposition", "2.7.6", amqp.ErrCondInvalidField}
	ruleSettledTwice    = rule{"settled-twice", "2.6.12", amqp.ErrCondIllegalState}
	ruleUnexpectedFrame = rule{"unexpected-frame", "2.4.7", amqp.ErrCondIllegalState}
)

var errServerClosed = wire.Error{Condition: wire.Symbol(amqp.ErrCondConnectionForced), Description: "the server is closed"}

// violation is a rule that a client broke.
type violation struct {
	rule
	client string // its container-id, "" before OPEN
	detail string
}

func (v *violation) Error() string {
	return fmt.Sprintf("amqptest: client %q broke %s (section %s): %s", v.client, v.name, v.section, v.detail)
}

// maxDescription keeps a CLOSE within the smallest frame that a client may
// ask for.
const maxDescription = 256

// violatef records that the client broke r and closes the connection with r's
// condition. Nothing that comes later is looked at.
func (c *conn) violatef(r rule, format string, args ...any) {
	if c.phase == phaseClosing && !c.closeIn {
		return // the first one has closed the connection
	}
	v := &violation{rule: r, client: c.peer.ContainerID, detail: fmt.Sprintf(format, args...)}
	c.srv.violations = append(c.srv.violations, v)
	c.srv.log.Error("protocol violation", "peer", c.name, "rule", r.name, "error", v)
	text := v.name + ": " + v.detail
	c.shut(&wire.Error{Condition: wire.Symbol(r.cond), Description: text[:min(len(text), maxDescription)]})
}

// Check fails tb for every rule of the protocol that a client has broken so
// far, and for a bad option. It does not wait; call it when the client is
// done, or use what Close returns.
func Check(tb testing.TB, s *Server) {
	tb.Helper()
	s.mu.Lock()
	errs := append([]error{}, s.violations...)
	if s.err != nil {
		errs = append(errs, s.err)
	}
	s.mu.Unlock()
	for _, err := range errs {
		tb.Error(err)
	}
}
