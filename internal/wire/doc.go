// Package wire turns AMQP 1.0 octets into Go structs and back: the type system,
// frame headers, the nine performatives, the SASL frames, delivery states,
// terminus types and message sections. It does no I/O and keeps no state.
//
// The standard is OASIS AMQP Version 1.0 of 2012-10-29; every wire type names
// its section there.
//
// # Decoding
//
// Input is hostile until proven otherwise. A value is walked once without
// reserving memory (lengths, counts, constructors, nesting to [MaxDepth]) before
// anything is built from it, so what is built is never larger than what really
// stands on the wire: at most some 20 octets of memory for each octet of input. A
// performative is bounded further, to 1<<14 values in all. Arrays of elements
// without octets (null, true, uint0 ...) are bounded to 1<<14 elements a call.
// Every decoding error wraps [ErrMalformed]. Nothing here panics on input.
//
// [Transfer], [Flow] and [Disposition] decode and encode without allocating, and
// so does [Sections.Parse]; their byte slices alias the input. Everything else
// copies.
//
// # Encoding
//
// Append functions extend dst and return it, like append. They choose the
// smallest encoding and leave absent trailing fields off.
package wire
