package amqptest

import (
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Violation is a rule of the standard that a client broke. The connection has
// been closed with Condition; nothing that the client sent after it was looked
// at. Close returns every one, and Check reports them.
//
// The rules by name, with the section of the OASIS standard of 2012-10-29:
//
//	protocol-header         2.2     the first 8 bytes name a layer of version 1.0.0 that fits
//	sasl                    5.3.3   sasl-init is all a client may send, with a mechanism that was offered
//	frame                   2.3.1   size, data offset and type of a frame's header
//	max-frame-size          2.7.1   no frame is larger than announced: 512 bytes for SASL and OPEN
//	performative            2.7     what stands in a frame decodes, with every mandatory field
//	value                   1.6     strings are UTF-8, symbols ASCII, chars code points, map keys distinct
//	fields                  2.8.13  the keys of properties, info and node properties are symbols
//	unexpected-frame        2.4     a performative that does not exist, or a second open
//	open-first              2.4.1   open comes first
//	open                    2.7.1   on channel 0, with a max-frame-size of at least 512
//	frame-after-close       2.4.3   nothing follows close
//	idle-timeout            2.4.5   something comes within Options.IdleTimeout
//	channel                 2.5.1   begin on a free channel, everything else on one that has a session
//	channel-max             2.7.1   no channel is above what either side announced
//	session-flow            2.7.4   a flow without handle says nothing of a link, next-incoming-id is there once known
//	session-id              2.5.6   transfer-ids of a flow exist, and do not go back
//	session-window          2.5.6   no transfer beyond the incoming window
//	handle                  2.6.2   a handle is attached
//	handle-in-use           2.7.3   attach on a free handle
//	handle-max              2.7.2   no handle is above what either side announced
//	attach                  2.7.3   a sender gives its initial-delivery-count
//	unsettled               2.7.3   an unsettled map is one of delivery-tags and delivery states
//	terminus                3.5.3   a source or target uses the values that exist, and dynamic as it is meant
//	delivery-count          2.6.7   of a flow: the sender's own, or one that the receiver can know
//	link-credit             2.6.7   no delivery without credit
//	transfer-direction      2.7.5   transfers on links where the client is the sender
//	first-transfer          2.7.5   the first frame of a delivery has id, tag and format
//	delivery-id             2.7.5   ids ascend by one in a session
//	delivery-tag            2.6.12  a tag of at most 32 bytes that no unsettled delivery of the link has
//	continuation            2.7.5   further frames of a delivery do not contradict its first
//	settle-mode             2.8.2   settled and rcv-settle-mode are as the link's modes allow
//	resume                  2.6.13  only what the attach called unsettled is resumed
//	message                 3.2     sections in order, each well-formed, with a body of one kind
//	annotations             3.2.10  keys of annotations are symbols that begin with "x-"
//	properties              3.2.4   no content-encoding but for data, and never identity
//	application-properties  3.2.5   values are of simple types
//	disposition             2.7.6   deliveries of a disposition exist, first to last
//	delivery-state          3.4     a state that exists, among the source's outcomes, from who may say it
//	settled-twice           2.6.12  a delivery is settled once
//	transaction             4.4     no transaction that was not declared
//
// What cannot be told from the wire is not held against a client: a socket
// that ends without close (it may have failed), an outgoing-window that it
// does not keep up to date, and a detach that it does not follow up. Strings
// for the keys of an error's info pass too, because go-amqp writes them.
type Violation struct { //nolint:errname // a violation is reported, and only then an error
	// Rule is its name, as in the table.
	Rule string
	// Section is where the standard has it.
	Section string
	// Condition is what the connection was closed with, where it was open.
	Condition amqp.ErrCond
	// Connection is the client's container-id, before OPEN its network
	// address.
	Connection string
	// Detail is what the client did.
	Detail string
}

// Error names rule, client and detail.
func (v *Violation) Error() string {
	return fmt.Sprintf("amqptest: client %q broke %s (section %s): %s", v.Connection, v.Rule, v.Section, v.Detail)
}

// rule is one rule that a client can break: its name, its section, and the
// condition with which the connection is closed.
type rule struct {
	name    string
	section string
	cond    amqp.ErrCond
}

var (
	ruleProtocolHeader  = rule{"protocol-header", "2.2", amqp.ErrCondFramingError}
	ruleSASL            = rule{"sasl", "5.3.3", amqp.ErrCondFramingError}
	ruleFrame           = rule{"frame", "2.3.1", amqp.ErrCondFramingError}
	ruleFrameSize       = rule{"max-frame-size", "2.7.1", amqp.ErrCondFramingError}
	rulePerformative    = rule{"performative", "2.7", amqp.ErrCondDecodeError}
	ruleValue           = rule{"value", "1.6", amqp.ErrCondDecodeError}
	ruleFields          = rule{"fields", "2.8.13", amqp.ErrCondDecodeError}
	ruleUnexpectedFrame = rule{"unexpected-frame", "2.4", amqp.ErrCondIllegalState}
	ruleOpenFirst       = rule{"open-first", "2.4.1", amqp.ErrCondIllegalState}
	ruleOpen            = rule{"open", "2.7.1", amqp.ErrCondInvalidField}
	ruleAfterClose      = rule{"frame-after-close", "2.4.3", amqp.ErrCondFramingError}
	ruleIdle            = rule{"idle-timeout", "2.4.5", amqp.ErrCondResourceLimitExceeded}
	ruleChannel         = rule{"channel", "2.5.1", amqp.ErrCondNotAllowed}
	ruleChannelMax      = rule{"channel-max", "2.7.1", amqp.ErrCondFramingError}
	ruleSessionFlow     = rule{"session-flow", "2.7.4", amqp.ErrCondInvalidField}
	ruleSessionID       = rule{"session-id", "2.5.6", amqp.ErrCondInvalidField}
	ruleSessionWindow   = rule{"session-window", "2.5.6", amqp.ErrCondWindowViolation}
	ruleHandle          = rule{"handle", "2.6.2", amqp.ErrCondUnattachedHandle}
	ruleHandleInUse     = rule{"handle-in-use", "2.7.3", amqp.ErrCondHandleInUse}
	ruleHandleMax       = rule{"handle-max", "2.7.2", amqp.ErrCondFramingError}
	ruleAttach          = rule{"attach", "2.7.3", amqp.ErrCondInvalidField}
	ruleUnsettled       = rule{"unsettled", "2.7.3", amqp.ErrCondInvalidField}
	ruleTerminus        = rule{"terminus", "3.5.3", amqp.ErrCondInvalidField}
	ruleDeliveryCount   = rule{"delivery-count", "2.6.7", amqp.ErrCondInvalidField}
	ruleLinkCredit      = rule{"link-credit", "2.6.7", amqp.ErrCondTransferLimitExceeded}
	ruleDirection       = rule{"transfer-direction", "2.7.5", amqp.ErrCondErrantLink}
	ruleFirstTransfer   = rule{"first-transfer", "2.7.5", amqp.ErrCondInvalidField}
	ruleDeliveryID      = rule{"delivery-id", "2.7.5", amqp.ErrCondInvalidField}
	ruleDeliveryTag     = rule{"delivery-tag", "2.6.12", amqp.ErrCondInvalidField}
	ruleContinuation    = rule{"continuation", "2.7.5", amqp.ErrCondInvalidField}
	ruleSettleMode      = rule{"settle-mode", "2.8.2", amqp.ErrCondInvalidField}
	ruleResume          = rule{"resume", "2.6.13", amqp.ErrCondInvalidField}
	ruleMessage         = rule{"message", "3.2", amqp.ErrCondDecodeError}
	ruleAnnotations     = rule{"annotations", "3.2.10", amqp.ErrCondNotImplemented}
	ruleProperties      = rule{"properties", "3.2.4", amqp.ErrCondInvalidField}
	ruleApplication     = rule{"application-properties", "3.2.5", amqp.ErrCondDecodeError}
	ruleDisposition     = rule{"disposition", "2.7.6", amqp.ErrCondInvalidField}
	ruleState           = rule{"delivery-state", "3.4", amqp.ErrCondInvalidField}
	ruleSettledTwice    = rule{"settled-twice", "2.6.12", amqp.ErrCondIllegalState}
	ruleTransaction     = rule{"transaction", "4.4", "amqp:transaction:unknown-id"}
)

var errServerClosed = wire.Error{Condition: wire.Symbol(amqp.ErrCondConnectionForced), Description: "the server is closed"}

// maxDescription keeps a CLOSE within the smallest frame that a client may
// ask for.
const maxDescription = 256

// violatef records that the client broke r and closes the connection with r's
// condition. Nothing that comes later is looked at.
func (c *conn) violatef(r rule, format string, args ...any) {
	if c.phase == phaseClosing && !c.closeIn {
		return // the first one has closed the connection
	}
	c.shut(c.violated(r, format, args...))
}

// violated records that the client broke r, and returns what to tell it.
func (c *conn) violated(r rule, format string, args ...any) *wire.Error {
	v := &Violation{
		Rule: r.name, Section: r.section, Condition: r.cond,
		Connection: c.client(), Detail: fmt.Sprintf(format, args...),
	}
	c.srv.violations = append(c.srv.violations, v)
	c.srv.log.Error("protocol violation", "peer", c.name, "rule", r.name, "error", v)
	text := v.Rule + ": " + v.Detail
	return &wire.Error{Condition: wire.Symbol(r.cond), Description: text[:min(len(text), maxDescription)]}
}

// client names the connection for a human reader.
func (c *conn) client() string {
	if c.peer.ContainerID != "" {
		return c.peer.ContainerID
	}
	return c.name
}
