package dataplane

import (
	"errors"
	"fmt"

	"github.com/amqpflow/amqpflow/internal/wire"
)

var (
	// ErrLimit is returned by ExpectSession past the peer's channel-max (or our
	// own limit) and by Expect past the peer's handle-max.
	ErrLimit = errors.New("limit reached")
	// ErrNotSent is wrapped by every error of Send that comes before the first
	// frame: the peer has nothing of the message, and sending it again is safe.
	ErrNotSent = errors.New("not sent")
	// ErrUncertain is wrapped by the errors of a message whose first frame was
	// queued and whose outcome is not known.
	ErrUncertain = errors.New("outcome not known")
	// ErrLinkLost is wrapped by what is tried on a link, or on a delivery of a
	// link, that is attached no more.
	ErrLinkLost = errors.New("link lost")
	// ErrTakenBack is returned by Settle for a delivery that the peer settled by
	// itself, or gave an outcome. It is ErrLinkLost.
	ErrTakenBack = fmt.Errorf("%w: the peer took the delivery back", ErrLinkLost)
	// ErrTransferLimit is a link's loss by a peer that sent more deliveries than
	// it had credit for.
	ErrTransferLimit = errors.New("peer sent more than its credit")
	// ErrClosed is the loss that we ourselves brought about.
	ErrClosed = errors.New("closed")
	// ErrIdle is a connection's loss by a peer that said nothing for too long.
	ErrIdle = errors.New("peer is silent")
)

// SizeError is returned by Send for a message over the peer's max-message-size.
// It is ErrNotSent.
type SizeError struct {
	Size  int    // octets of the encoded message
	Limit uint64 // what the peer's ATTACH allows
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("message of %d octets, the peer takes %d", e.Size, e.Limit)
}

// Is reports whether target is ErrNotSent.
func (e *SizeError) Is(target error) bool { return target == ErrNotSent }

// PeerError is a loss by the peer's word.
type PeerError struct {
	Performative string      // "detach", "end" or "close"
	Closed       bool        // of a detach: whether the link's terminus is gone too
	Err          *wire.Error // why, nil if the peer did not say
}

func (e *PeerError) Error() string {
	if e.Err == nil {
		return "peer sent " + e.Performative
	}
	return "peer sent " + e.Performative + ": " + e.Err.Error()
}

// Unwrap returns the peer's error, if it gave one.
func (e *PeerError) Unwrap() error {
	if e.Err == nil {
		return nil
	}
	return e.Err
}

// both makes an error that is sentinel and cause at once.
func both(sentinel, cause error) error {
	if cause == nil {
		return sentinel
	}
	return fmt.Errorf("%w: %w", sentinel, cause)
}

// violation is a peer's breach of the protocol that ends the connection.
func violation(format string, args ...any) error {
	return fmt.Errorf("peer broke the protocol: "+format, args...)
}

// misuse is a frame that go-amqp, used as agreed, does not write.
func misuse(format string, args ...any) error {
	return fmt.Errorf("unexpected frame from go-amqp: "+format, args...)
}

var errNotAttached = errors.New("not attached yet")
