package amqpflow

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestErrors_textsAndCauses(t *testing.T) {
	cause := errors.New("cause")
	refused := &AttachError{Address: "out", Err: cause}
	for _, tc := range []struct {
		err   error
		text  string
		cause error
	}{
		{&ConnectError{URL: "amqp://h", Step: "dial", Err: cause}, `amqpflow: connect to "amqp://h": dial: cause`, cause},
		{&ConnectError{URL: "amqp://h", Step: "open", Err: ErrShutdown}, `amqpflow: connect to "amqp://h": open: shut down`, ErrShutdown},
		{refused, `amqpflow: attach "out": cause`, cause},
		{&PublishError{Address: "out", Outcome: Released}, `amqpflow: publish to "out": released by the peer`, nil},
		{
			&PublishError{Address: "out", Outcome: Rejected, Condition: "acme:full", Description: "no room"},
			`amqpflow: publish to "out": rejected by the peer: acme:full: no room`, nil,
		},
		{&PublishError{Address: "out", Err: refused}, `amqpflow: publish to "out": attach "out": cause`, cause},
		{&EncodeError{Address: "out", ContentType: "text/plain", Err: cause}, `amqpflow: encode text/plain for "out": cause`, cause},
		{&EncodeError{Address: "out", Err: cause}, `amqpflow: encode body for "out": cause`, cause},
		{&OptionError{Field: "Options.Codecs", Err: cause}, `amqpflow: option Options.Codecs: cause`, cause},
		{&SettleError{Address: "in", Outcome: Accepted, Err: ErrLinkLost}, `amqpflow: settle "in" as accepted: link lost`, ErrLinkLost},
		{&DecodeError{Address: "in", ContentType: "a/b", Err: cause}, `amqpflow: decode a/b from "in": cause`, cause},
		{&BodyError{Address: "in", Section: "an amqp-sequence"}, `amqpflow: read body from "in": an amqp-sequence cannot be read as bytes`, nil},
		{&MessageTooLargeError{Address: "in", Size: 9, Limit: 8}, `amqpflow: receive from "in": message of 9 bytes is over the limit of 8`, nil},
		{&UnreadableError{Address: "in", Err: cause}, `amqpflow: read message from "in": cause`, cause},
		{&PanicError{Address: "in", Value: cause}, `amqpflow: handler of "in": panic: cause`, cause},
		{&PanicError{Address: "in", Value: "text"}, `amqpflow: handler of "in": panic: text`, nil},
		{&PanicError{Address: "in"}, `amqpflow: handler of "in": called runtime.Goexit`, nil},
	} {
		assert.Equal(t, tc.text, tc.err.Error(), "%T", tc.err)
		assert.Equal(t, 1, strings.Count(tc.err.Error(), "amqpflow:"), "the package's name stands once")
		if tc.cause != nil {
			assert.ErrorIs(t, tc.err, tc.cause, "%T", tc.err)
		} else {
			assert.NoError(t, errors.Unwrap(tc.err), "%T", tc.err)
		}
	}
}
