package wire

import (
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error that decoding returns. The text of the
// wrapping error says where the fault is and what it is.
var ErrMalformed = errors.New("malformed AMQP encoding")

// malformed makes a decoding error.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

func errShort() error { return malformed("ends in the middle of a value") }

// within says where a decoding error happened.
func within(err error, format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
