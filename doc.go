// Package amqpflow binds AMQP 1.0 addresses to typed handlers.
//
// A service registers a handler for an address, runs, and from then on every
// delivery is decoded, handled and settled exactly once, against RabbitMQ 4,
// ActiveMQ Artemis, Azure Service Bus or any AMQP 1.0 peer:
//
//	b := amqpflow.New("amqp://localhost:5672")
//	amqpflow.Subscribe(b, "orders", func(ctx context.Context, m *amqpflow.Message[Order]) error {
//		return ship(ctx, m.Body) // nil accepts, an error is a counted retry
//	})
//	if err := b.Run(ctx); err != nil { // connect, attach, serve, drain when ctx ends
//		log.Fatal(err)
//	}
//
// # Words
//
// The words are the standard's: a peer and this process share a connection,
// which carries sessions, which carry links. A link is attached to an address;
// it brings deliveries as long as there is credit; a disposition settles a
// delivery with an outcome. Two words are ours: to retry is to give a delivery
// back as an attempt that counts (modified with delivery-failed), and to
// dead-letter is to have the peer put it aside (rejected).
//
// # Guarantees
//
// Delivery is at least once. A delivery is settled after its handler returned,
// with one disposition, or not at all: when its link, the connection or the
// process is lost first, the peer delivers the message again. So a handler
// must bear to see a message twice. The deliveries that are not settled never
// exceed SubscribeOptions.Credit. With SubscribeOptions.AtMostOnce the peer
// forgets a message when it sends it; then a message can be lost and is never
// seen twice.
//
// A publish has one of three answers: confirmed, safe to send again, or
// ErrUncertain. Nothing is sent twice by this package.
//
// # Outcomes
//
// What a handler returns decides:
//
//	nil              accepted   done
//	any other error  modified   a retry: the attempt counts, the peer delivers it again
//	Retry(err)       modified   the same
//	Reject(err)      rejected   the peer's dead-letter policy decides
//	Release()        released   the attempt does not count; anyone may have it
//	FailFast(err)    none       the broker ends with err; the peer delivers it again
//
// An *OutcomeError says what these cannot. SubscribeOptions.OnFailure maps
// errors that chose no outcome, bodies that cannot be decoded (by default
// rejected) and panics (by default a retry). A retry leaves at once: how often
// and how soon the message returns is the peer's policy.
//
// # Concurrency
//
// A subscription calls its handler for one delivery at a time, in the order in
// which they came; subscriptions do not wait for one another, and each has a
// session of its own. Everything exported is safe for concurrent use. A
// handler may publish, settle, and shut the broker down.
//
// # Shutdown
//
// Run drains when its context ends: the credit is taken back, running handlers
// finish and settle, what no handler has begun is released, and links,
// sessions and the connection close in that order. See Broker.Shutdown.
//
// # Errors
//
// Every error of this package begins with "amqpflow:", has a type or a
// sentinel in errors.go, and keeps its cause in the chain: an *amqp.Error where
// the peer gave one, the context's error where a context ended. No error and no
// log shows a password.
//
// A link or a session that is lost ends its subscription, which is logged,
// reported to Observer and seen in Ready and Subscription.Err; the others go
// on. The connection lost ends the broker: Run returns the cause.
//
// # Log
//
// Options.Logger gets, at level Error: a handler that panicked (with its
// stack), a subscription or the broker that ended, a settlement that was lost.
// Warn: a delivery that is retried or rejected, a link, session or connection
// that was lost, a publish that is uncertain, an attach that was refused, a
// handler that did not return. Info: connected, attached, shutdown. Debug: each
// settlement and publish. Attributes: address, link, attempt, outcome,
// condition, error, peer. A body is never logged.
//
// # Cost
//
// A subscription takes four goroutines, two of them go-amqp's, and about 125
// KiB inside go-amqp, whatever its credit.
//
// # Not offered
//
// Transactions, selectors, durable subscriptions, link recovery and message
// batching formats are not part of this version.
//
// # Specification
//
// OASIS Advanced Message Queuing Protocol (AMQP) Version 1.0, 29 October 2012.
// "Spec:" in a comment names the section, part first: 2.6.12 is section 6.12 of
// part 2, transport.
package amqpflow
