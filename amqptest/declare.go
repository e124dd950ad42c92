package amqptest

import (
	"errors"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
)

// NodeOptions says how a node treats its messages. The zero value, and nil,
// mean the defaults. For a topic they apply to each subscription.
type NodeOptions struct {
	// MaxDeliveries is how often a message is delivered at most, as in Options.
	// A negative value means no limit.
	//
	// Default: Options.MaxDeliveries, or what the dialect's broker has.
	MaxDeliveries int
	// DeadLetter is the queue to which a copy of each dead letter goes: what was
	// rejected, delivered too often or pushed out by DropOldestWhenFull, and, unless
	// Expiry is set, what has expired. Declare makes it if it is missing.
	//
	// Default: none; DeadLetters returns the dead letters either way. In
	// DialectArtemis: the queues DLQ and ExpiryQueue.
	DeadLetter amqpflow.Address
	// Expiry is the queue to which a copy of what has expired goes instead.
	//
	// Default: DeadLetter.
	Expiry amqpflow.Address
	// TTL is how long a message waits at most, to the millisecond. The time-to-live
	// of a message itself may be shorter.
	//
	// Default: for ever.
	TTL time.Duration
	// MaxLength is how many messages wait at most in a queue; what consumers
	// hold does not count, nor does Put.
	//
	// Default: no limit.
	MaxLength int
	// WhenFull is what happens to publishers at MaxLength.
	//
	// Default: RejectWhenFull.
	WhenFull FullPolicy
	// QueueType is the kind of a queue of RabbitMQ.
	//
	// Default: QuorumQueue, which is all that other dialects take.
	QueueType QueueType
	// Bind are the bindings of a queue of RabbitMQ, as "EXCHANGE/KEY". Those
	// that it has stay.
	//
	// Default: none; no other dialect takes any.
	Bind []string
}

// FullPolicy is what happens to publishers of a queue that is full.
type FullPolicy uint8

const (
	// RejectWhenFull answers with rejected and amqp:resource-limit-exceeded.
	RejectWhenFull FullPolicy = iota
	// WithholdWhenFull grants no more than there is room for, and goes on when
	// there is some. What publishers have in hand is taken.
	WithholdWhenFull
	// DropOldestWhenFull makes the first waiting message a dead letter.
	DropOldestWhenFull
)

// QueueType is a kind of queue of RabbitMQ: they differ in what they count as
// a delivery attempt.
type QueueType uint8

const (
	// QuorumQueue counts modified with delivery-failed, rejected, and what was
	// unsettled when its session ended.
	QuorumQueue QueueType = iota
	// ClassicQueue counts what was unsettled when its link was closed, too, and
	// has no limit.
	ClassicQueue
)

// nodeSettings are NodeOptions with the defaults in place.
type nodeSettings struct {
	maxDeliveries int // 0: no limit
	deadLetter    string
	expiry        string
	ttl           time.Duration
	maxLength     int // 0: no limit
	whenFull      FullPolicy
	queueType     QueueType
}

// Declare makes the node at addr, with opts, of which there is none, nil or
// one. A node that is there takes on opts and keeps its messages.
//
// It returns an error, which names the field, if addr cannot be parsed or
// names a node of the other kind, and if an option is out of range or means
// nothing for that node; ErrClosed after Close; and a bad option of the
// server.
func (s *Server) Declare(addr amqpflow.Address, opts ...*NodeOptions) error {
	if len(opts) > 1 {
		panic("amqptest: Declare: more than one *NodeOptions")
	}
	if err := s.usable(); err != nil {
		return err
	}
	var o NodeOptions
	if len(opts) == 1 && opts[0] != nil {
		o = *opts[0]
	}
	if err := s.declare(addr, &o); err != nil {
		return fmt.Errorf("amqptest: declare %q: %w", addr, err)
	}
	return nil
}

func (s *Server) declare(addr amqpflow.Address, o *NodeOptions) error {
	name, kind, err := s.nameOf(addr)
	if err != nil {
		return err
	}
	if err := errors.Join(o.check(kind), s.dialect.checkOptions(o)); err != nil {
		return err
	}
	s.lock()
	defer s.unlock()
	settings := s.settings(o.QueueType)
	settings.ttl, settings.maxLength, settings.whenFull = o.TTL, o.MaxLength, o.WhenFull
	if o.MaxDeliveries != 0 {
		settings.maxDeliveries = max(o.MaxDeliveries, 0)
	}
	for _, d := range []struct {
		field string
		addr  amqpflow.Address
		into  []*string
	}{
		{"DeadLetter", o.DeadLetter, []*string{&settings.deadLetter, &settings.expiry}},
		{"Expiry", o.Expiry, []*string{&settings.expiry}},
	} {
		if d.addr == "" {
			continue
		}
		grave, err := s.makeAt(d.addr)
		if err != nil {
			return fmt.Errorf("NodeOptions.%s: %w", d.field, err)
		}
		for _, into := range d.into {
			*into = grave.name
		}
	}
	n, err := s.makeAt(addr)
	if err != nil {
		return err
	}
	if n.kind != kindQueue && n.kind != kindTopic {
		return fmt.Errorf("an %s cannot be declared", n.kind)
	}
	if err := s.dialect.bind(s, name, o.Bind); err != nil {
		return fmt.Errorf("NodeOptions.Bind: %w", err)
	}
	n.settings = settings
	return nil
}

func (o *NodeOptions) check(kind nodeKind) error {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("NodeOptions.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if o.TTL < 0 || o.TTL%time.Millisecond != 0 {
		fail("TTL", "%v is not a number of milliseconds", o.TTL)
	}
	if o.MaxLength < 0 {
		fail("MaxLength", "%d is below 0", o.MaxLength)
	}
	if o.MaxLength > 0 && kind == kindTopic {
		fail("MaxLength", "a topic has none")
	}
	if o.WhenFull > DropOldestWhenFull {
		fail("WhenFull", "%d does not exist", o.WhenFull)
	}
	if o.WhenFull != RejectWhenFull && o.MaxLength == 0 {
		fail("WhenFull", "there is no MaxLength")
	}
	if o.QueueType > ClassicQueue {
		fail("QueueType", "%d does not exist", o.QueueType)
	}
	return errors.Join(errs...)
}

// settings are those of a node that nobody has declared.
func (s *Server) settings(t QueueType) nodeSettings {
	r := nodeSettings{
		maxDeliveries: max(s.opts.MaxDeliveries, 0), queueType: t,
		deadLetter: s.dialect.deadLetter, expiry: s.dialect.expiry,
	}
	if t == ClassicQueue {
		r.maxDeliveries = 0
	}
	return r
}
