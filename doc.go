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
// It publishes through the same connection, from a handler or from anywhere:
//
//	err := b.Publisher().Publish(ctx, "invoices", Invoice{…})
//
// # Words
//
// The words are the standard's: a peer and this process share a connection,
// which carries sessions, which carry links. A link is attached to an address;
// it brings deliveries as long as there is credit; a disposition settles a
// delivery with an outcome. Two words are ours: to retry is to give a delivery
// back as an attempt that counts (modified with delivery-failed), and to
// dead-letter is to put a message aside, at an address of one's own or by the
// peer's policy (rejected).
//
// # Delivery guarantees
//
// Delivery is at least once. A delivery is settled after its handler returned,
// with one disposition, or not at all: when its link, the connection or the
// process is lost before the peer has read that, the peer delivers the message
// again. Dispositions are gathered for up to a millisecond. So a handler must bear to see a message twice. With SubscribeOptions.AtMostOnce the peer
// forgets a message when it sends it; then a message can be lost and is never
// seen twice.
//
// The deliveries that are not settled never exceed SubscribeOptions.Credit,
// and with them what is in memory: those that wait for a handler count, and
// those that a batch or a Stream's reader holds.
//
// # Outcomes
//
// What a handler returns decides:
//
//	nil                 accepted   done
//	any other error     modified   a retry, held for the backoff: the attempt counts, the peer delivers it again
//	Retry(err)          modified   the same
//	RetryAfter(d, err)  modified   the same, held for d
//	Reject(err)         rejected   the peer's dead-letter policy decides
//	Release()           released   the attempt does not count; anyone may have it
//	DeadLetter(err)     accepted   once it is published to SubscribeOptions.DeadLetter; rejected without one
//	FailFast(err)       none       the broker ends with err; the peer delivers it again
//
// An *OutcomeError says what these cannot. SubscribeOptions.OnFailure maps
// errors that chose no outcome, bodies that cannot be decoded (by default
// rejected) and panics (by default a retry).
//
// A retry is held before it goes back: for up to 100 milliseconds at the first
// attempt, doubling to 10 seconds, at random. So what fails again and again is
// no hot loop, and a process that dies meanwhile loses nothing, since the peer
// has the message until it is settled. A held delivery keeps its place in the
// window; beyond half of the window retries leave at once, as do all at Shutdown
// and Close. RabbitMQ 4.3 holds those of more than 10 seconds itself, see
// RetryAfter. SubscribeOptions.MaxAttempts ends the retries of a message with a
// dead letter.
//
// Delivery.Accept and Settle settle in the middle of a handler; what it
// returns then is only logged. Delivery.Mark chooses an outcome without
// sending it yet, for one delivery of a batch. A delivery that is settled twice
// is an error, ErrSettled, and never a second disposition.
//
// # Concurrency
//
// A subscription calls its handler for one delivery at a time, in the order in
// which they came, unless its options say otherwise:
//
//   - SubscribeOptions.Workers: so many calls at once, in no order.
//   - Workers with PartitionBy: so many lanes. Deliveries of one key are handled
//     one at a time, in order; lanes do not wait for one another while the
//     window has room for their deliveries. Order ends at a retry or a release:
//     what goes back comes again behind the others. With OrderedRetry a failed
//     delivery waits in its lane instead, and the lane with it.
//   - SubscribeBatch: one call for up to BatchSize deliveries, or for those that
//     came within BatchWait. Workers batches at once.
//   - Broker.Stream: no handler. A loop takes deliveries, or decoded messages
//     with Messages, and settles them itself.
//
// Subscriptions do not wait for one another: each has a session of its own, as
// far as the peer allows that many. Everything exported is safe for concurrent
// use. A handler may publish, settle, subscribe, and shut the broker down.
//
// # Replies
//
// SubscribeReply sends what its handler returns to the request's reply-to,
// under the request's correlation-id, or its message-id where it has none. The
// request is accepted once the peer has accepted the reply; a reply that cannot
// be sent makes the request a retry, and a request that names no address is
// rejected before the handler is called.
//
// # Publishing
//
// Publish waits for the peer's answer, and there are three, never mixed up:
//
//	nil                               confirmed: the peer has the message
//	*PublishError, ErrNotConnected,   refused or not sent: safe to publish again
//	*EncodeError, *OptionError
//	ErrUncertain                      the peer may have it; a second one may be a duplicate
//
// Nothing is sent twice by this package. Whoever sends what is uncertain again
// sets PublishOptions.MessageID, the same both times, so that receivers can tell.
// An ended context costs neither the connection nor a message: before the first
// frame it is ErrNotSent, after it ErrUncertain, and the message is finished.
//
// Send queues a message and returns a Receipt for the same answer, so that up to
// Options.MaxInFlight messages to one address are under way at once; Flush
// waits for them all. Publishes and Sends to one address leave in the order of
// the calls; two addresses do not wait for each other. A link is attached by
// the first publish to its address, and an address that the peer refuses harms
// no other.
//
// # Recovery
//
// What is lost is made again, on its own level, for as long as the broker lives:
// a link on its session and connection, without touching its siblings; the links
// of a session that ended on another one; everything on a new connection, to the
// Broker's URL or one of Options.FailoverURLs, with credentials that are asked
// for anew. Attempts follow one another with delays that double from 100 ms to
// 30 s, jittered in full. They are short again only once a link or a connection
// has moved a delivery or lasted for 10 s. What the peer refuses for a reason
// that time alone will not heal (the credentials, unauthorized-access, not-found,
// not-allowed) is tried every 30 s, and reported each time. Where only some of
// several URLs refuse so, delays grow as ever: the others may heal.
//
// Only three things end a subscription by themselves: a peer that sends more than
// its credit (ErrCreditExceeded), an address that the peer has no form for
// (ErrUnsupported), and a SubscribeOptions.DeadLetter that is the source itself by
// another of the peer's names for it (*OptionError). Only FailFast and Shutdown end the broker. Until the first
// Connect has succeeded nothing is tried again, unless Options.ConnectRetry says
// so.
//
// What a lost link brought and no handler has begun is dropped before the next
// one gets credit: the peer has it, and delivers it again. A handler that runs
// sees its context end with cause ErrLinkLost; what it returns is lost, and never
// settles what came later. Its worker begins nothing else before it has returned.
//
// A publish waits for the connection, within its context, in the order of the
// calls to its address; so does one whose link is lost before its first frame
// was queued. Of those that begin while it is lost at most Options.MaxPending
// wait; with Options.FailFastPublish none does. A publish whose link the peer refuses returns the *AttachError at once,
// and the next publish tries again.
//
// Broker.Ready says what is missing and why, Subscription.State is Attaching
// meanwhile with the reason in Err, and Observer.Connection, Observer.State and
// the log tell of each step.
//
// # Middleware
//
// Options.Middleware and SubscribeOptions.Middleware wrap the calls of all
// kinds of handlers, the first outermost; Options.PublishMiddleware wraps every
// Publish, Send and reply. Observer is told what happened, for metrics.
//
// # Pause
//
// Subscription.Pause takes the credit back and hands back what no handler has
// begun, without detaching; Resume goes on.
//
// # Shutdown
//
// Run drains when its context ends: the credit is taken back, running handlers
// finish and settle, what no handler has begun is released, and links,
// sessions and the connection close in that order. It takes no longer than
// Options.ShutdownTimeout, whatever a handler or the peer does. See
// Broker.Shutdown for a bound of one's own, and Subscription.Close for one
// subscription.
//
// # Errors
//
// Every error of this package begins with "amqpflow:", has a type or a
// sentinel in errors.go, and keeps its cause in the chain: an *amqp.Error where
// the peer gave one, the context's error where a context ended. No error and no
// log shows a password. What is wrong with options and registrations is
// returned by Connect, all of it at once and before any I/O.
//
// # Log
//
// Options.Logger gets, at level Error: a handler that panicked (with its
// stack), a subscription or the broker that ended, a settlement that was lost.
// Warn: a delivery that is retried, rejected or dead-lettered, a link, session or connection
// that was lost, an attempt to connect that failed, a publish that is uncertain,
// an attach that was refused, a handler that did not return. Info: connected,
// attached, recovered (after, attempts), shutting down, shutdown. Debug: each
// settlement and publish. Attributes: address, link, message-id, attempt, outcome,
// condition, delay, error, peer. A body is never logged.
// Without a Logger there is no log at all.
//
// # Testing
//
// Package amqptest is a broker in memory to which a service's own wiring
// connects. OutcomeOf says what a handler's error means, without any broker.
//
// # Cost
//
// A subscription with one worker takes four goroutines, two of them go-amqp's,
// and about 125 KiB inside go-amqp, whatever its credit.
//
// # Not offered
//
// Exactly-once processing: no protocol can give it to a handler with side
// effects. Fairness among the consumers of one queue, and order across
// addresses, retries and releases. Bodies that are maps, lists or numbers:
// they are rejected, and Delivery.AMQP is there for the rest of a message.
// Declaring queues: whoever runs the peer does that.
//
// Requests, transactions, selectors and durable subscriptions are not part of
// this version.
//
// # Specification
//
// OASIS Advanced Message Queuing Protocol (AMQP) Version 1.0, 29 October 2012.
// "Spec:" in a comment names the section, part first: 2.6.12 is section 6.12 of
// part 2, transport.
package amqpflow
