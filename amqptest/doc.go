// Package amqptest is an AMQP 1.0 broker in memory, for tests and examples. A
// client really connects to it, over a pipe or over a socket, so that what
// runs in a test is the client's own code down to the frames.
//
//	s := amqptest.NewServer()
//	t.Cleanup(func() { assert.NoError(t, s.Close()) })
//	b := amqpflow.New("amqp://localhost")
//	require.NoError(t, s.Connect(ctx, b))
//
// # What it offers
//
// An attach with the terminus capability "queue", or with none, creates a
// queue, and its consumers compete for its messages. A message that comes back
// (released, modified, or its link, session or connection lost) takes its old
// place in the queue. Only modified with delivery-failed counts as an attempt;
// rejected, and the attempt that reaches Options.MaxDeliveries, make a message
// a dead letter. A source with distribution-mode copy sees each message once
// and takes none.
//
// The capability "topic" creates a topic: each subscription gets a copy of what
// is published while it is attached, and settles it for itself. A dynamic
// source or target gets a node of its own, which is deleted as its
// lifetime-policy says, with its link if it says nothing. A target without an
// address takes messages that name theirs in "to".
//
// What a message's time-to-live or absolute-expiry-time ends is never delivered
// and becomes a dead letter. One whose annotation x-opt-delivery-time (or
// x-opt-delivery-delay) says so is delivered then; modified may carry it too.
// Declare gives a node a delivery limit, a queue for its dead letters, a
// time-to-live and a maximum length.
//
// Durable and shared subscriptions, selectors and transactions are refused with
// amqp:not-implemented. Every other filter is ignored, and the answer says so.
//
// # What it checks
//
// Every frame of every client is held against the standard: the order of
// delivery-ids, link credit, session windows, the states of channels and
// handles, frame sizes, the sections of a message, and that a disposition
// names a delivery that exists and is settled once. Whoever breaks a rule
// loses the connection with the condition that the standard names; Check and
// Close report it as a Violation, whose documentation lists the rules.
//
// # Links
//
// A detach that closes its link, or has an error, gives back what the client
// has not settled. Any other leaves it unsettled, to be settled still, until the
// session ends or the link is attached again: what that attach gives an outcome
// has it then, everything else comes back and is delivered anew, and a publisher
// that settles second is told what it has still to settle. An attach under the
// name of a link that the same container has attached steals it.
//
// # Dialects
//
// Options.Dialect makes a Server answer as one of two brokers does, of which
// this was measured:
//
//	                     generic               Artemis 2.44.0            RabbitMQ 4.3.6
//	product in OPEN      amqptest              apache-activemq-artemis   RabbitMQ, with the version
//	idle timeout         none                  30 s announced            30 s announced
//	sessions, links      65536, 2^32           65536, 65536              64; 256, one more ends the session
//	publisher's credit   256                   1000                      170
//	max-message-size     none                  the same                  16 MiB
//	addresses            any name              any name                  /queues/NAME, /exchanges/NAME/KEY to publish
//	missing node         made: a queue         made: a topic unless the  amqp:not-found; any other address
//	                                           capability is "queue"     amqp:invalid-field
//	node of other kind   amqp:not-allowed      amqp:illegal-state; what  (has none)
//	                                           is sent there is lost
//	topic                every subscription    the same, with patterns   exchanges amq.topic, amq.direct, amq.fanout,
//	                                           ("*", "#")                amq.headers and one's own, to bound queues
//	nobody there         accepted and lost     accepted and lost         released
//	dynamic nodes        source and target     source and target         refused, but for rabbitmq:volatile-queue
//	copy                 takes nothing         takes nothing             takes
//	"to" without node    made                  the same                  released; not-found for an exchange
//	no "to"              rejected              rejected, "failed"        rejected
//	counts an attempt    delivery-failed       the same                  and rejected, a lost session; in a classic
//	                                                                     queue a closed link, too
//	attempts             10                    10, then DLQ              21; no limit in a classic queue
//	expired              dead letter           ExpiryQueue               dropped or dead letter; absolute-expiry-time
//	                                                                     is not looked at
//	delivery-time        messages, modified    messages, as a long       modified, in a quorum queue
//	modified's           kept                  lost                      kept in a quorum queue; without "x-" in
//	annotations                                                          front the session ends
//	undeliverable-here   another link gets it  another link gets it      dead letter
//	order                of arrival            by priority               by priority in a quorum queue; what is
//	                                                                     given back comes first
//	rcv-settle-mode      second is kept        answered as first         second is refused
//	annotations added    none                  to dead letters           to all messages
//	/management                                                          GET, PUT, DELETE of queues, exchanges and
//	                                                                     bindings, POST of bindings
//
// Selectors, durable and shared subscriptions and transactions are refused in
// every dialect, where the broker has them or not; RabbitMQ does not look at
// filters and durability. Its delay after a wrong password is not modelled, nor
// streams, virtual hosts, and Artemis's management and address settings.
//
// # Seeing
//
// Messages, DeadLetters, Bodies and Settlements tell of a node, Credit and
// Unsettled of its consumers, Connections of the clients; Idle waits until
// nothing goes on. Frames returns the last frames of all connections, Options.Trace logs each of
// them, and a test that has failed shows the last 50 if it calls Check. This is
// a consumer that connects, gets a message and rejects it a second later:
//
//	00:00:00.000000 #1 ch 0 client header protocol=SASL
//	00:00:00.000000 #1 ch 0 server header protocol=SASL
//	00:00:00.000000 #1 ch 0 server sasl-mechanisms sasl-server-mechanisms=[PLAIN ANONYMOUS]
//	00:00:00.000000 #1 ch 0 client sasl-init mechanism=PLAIN initial-response=(12 bytes)
//	00:00:00.000000 #1 ch 0 server sasl-outcome code=0
//	00:00:00.000000 #1 ch 0 client header protocol=AMQP
//	00:00:00.000000 #1 ch 0 server header protocol=AMQP
//	00:00:00.000000 #1 ch 0 client open container-id=shop max-frame-size=65536 idle-time-out=30000
//	00:00:00.000000 #1 ch 0 server open container-id=amqptest max-frame-size=131072 offered-capabilities=[ANONYMOUS-RELAY] properties={product=amqptest}
//	00:00:00.000000 #1 ch 0 client begin next-outgoing-id=0 incoming-window=5000 outgoing-window=5000 handle-max=4294967294
//	00:00:00.000000 #1 ch 0 server begin remote-channel=0 next-outgoing-id=0 incoming-window=2048 outgoing-window=2147483647
//	00:00:00.000000 #1 ch 0 client attach name=in handle=0 role=receiver source={address=orders} target={}
//	00:00:00.000000 #1 ch 0 server attach name=in handle=0 role=sender source={address=orders} target={} initial-delivery-count=0
//	00:00:00.000000 #1 ch 0 client flow next-incoming-id=0 incoming-window=5000 next-outgoing-id=0 outgoing-window=5000 handle=0 delivery-count=0 link-credit=1
//	00:00:00.000000 #1 ch 0 server transfer handle=0 delivery-id=0 delivery-tag=00000000 message-format=0 payload=31
//	00:00:01.000000 #1 ch 0 client disposition role=receiver first=0 settled=true state=rejected{error={condition=amqp:internal-error description="no eggs"}}
//	00:00:01.000000 #1 ch 0 client detach handle=0 closed=true
//	00:00:01.000000 #1 ch 0 server detach handle=0 closed=true
//	00:00:01.000000 #1 ch 0 client close
//	00:00:01.000000 #1 ch 0 server close
//
// # Faults
//
// Whatever can go wrong between a client and a broker can be made to go wrong.
// Fault says when, how often and to whom; these say what:
//
//   - a refusal: [RefuseTCP], [RefuseSASL], [HangUpSASL], [RefuseOpen],
//     [RefuseBegin], [RefuseAttach]
//   - an end: [Detach], [Suspend], [End], [Close], [Drop]
//   - a stall: [Silence], [Mute], [Deaf], [StopReading], [Drip],
//     [WithholdCredit], [WithholdWindow]
//   - an answer of another kind, or none: [Answer], [DropDisposition],
//     [IgnoreDisposition], [IgnoreDrain], [IgnoreDetach], [IgnoreEnd],
//     [IgnoreClose]
//   - a delivery that nobody expects: [Duplicate], [Reorder], [OverSend],
//     [TakeBack]
//   - anything else: [WriteBytes]
//
// [Together] and [Sequence] put them together, and [Server.Heal] lifts them all.
// Under a seed, and in a bubble, it goes wrong the same way each time.
//
// # Time
//
// A Server has no goroutine before the first connection and none after Close.
// Made inside a testing/synctest bubble and used through Dial or Connect, all
// its waits are on the bubble's clock. URL and Serve with a socket need real
// time.
package amqptest
