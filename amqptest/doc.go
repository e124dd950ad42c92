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
// Close report it.
//
// # Time
//
// A Server has no goroutine before the first connection and none after Close.
// Made inside a testing/synctest bubble and used through Dial or Connect, all
// its waits are on the bubble's clock. URL and Serve with a socket need real
// time.
package amqptest
