package amqpflow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/Azure/go-amqp"
)

// Options configures a Broker. The zero value of a field means its default.
type Options struct {
	// ContainerID identifies this process to the peer.
	//
	// Default: random.
	ContainerID string
	// Credentials is asked for the SASL mechanism at each dial, and what it
	// returns is used for that dial only, so a token may expire. When it fails
	// while the connection is lost it is asked again after the next delay. It
	// must not be set together with user-info in a URL.
	//
	// Default: PLAIN with the URL's user-info, ANONYMOUS where it has none.
	Credentials func(context.Context) (amqp.SASLType, error)
	// Hostname is what OPEN asks for, a virtual host in RabbitMQ's words:
	// "vhost:NAME".
	//
	// Default: the URL's host.
	Hostname string
	// TLS configures amqps; for client certificates, own roots and server names.
	//
	// Default: the system's roots and the URL's host name.
	TLS *tls.Config
	// DialContext opens the socket: for a proxy, a websocket or a test.
	//
	// Default: a net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Dialect says how addresses are written on the wire.
	//
	// Default: DialectAuto, by the peer's open properties and host name.
	Dialect Dialect
	// Properties go into OPEN, where the consoles of brokers show them. Values
	// must be of AMQP's types.
	//
	// Default: product, version and platform.
	Properties map[string]any
	// IdleTimeout is how long the peer may be silent before the connection
	// counts as lost. A negative value means for ever.
	//
	// Default: 1 minute.
	IdleTimeout time.Duration
	// MaxSessions is how many sessions the connection may have. Where there
	// are fewer than links need, subscriptions share them, and with them their
	// flow-control window; with 1 everything is on one session.
	//
	// Default: what the peer allows.
	MaxSessions int
	// ConnectRetry makes the first Connect try again, with growing delays, until
	// its context ends. What is wrong with options, URL and registrations still
	// fails at once, and so does an address that the peer has no form for.
	ConnectRetry bool
	// FailoverURLs are tried in turn where the Broker's URL cannot be connected
	// to, at the first Connect and after each loss; the URL itself comes first
	// every time. Either all of them have user-info or none has.
	FailoverURLs []string
	// FailFastPublish makes a publish return ErrNotConnected at once while the
	// connection is lost.
	//
	// Default: it waits for the connection within its context.
	FailFastPublish bool
	// MaxPending is how many of the publishes that begin while the connection is
	// lost may wait for it; one more returns ErrNotConnected at once. Those under
	// way when it is lost wait besides. A negative value means none.
	//
	// Default: 10000.
	MaxPending int
	// MaxInFlight is how many Sends to one address may be unconfirmed.
	//
	// Default: 256.
	MaxInFlight int
	// ShutdownTimeout bounds the drain of Run, and of a Shutdown that is
	// called from a handler with a context that has no deadline.
	//
	// Default: 30 seconds.
	ShutdownTimeout time.Duration
	// Codecs encode and decode bodies: the first is the default, the others
	// are chosen by content type.
	//
	// Default: JSON.
	Codecs []Codec
	// Middleware wraps the handlers of every subscription, the first
	// outermost.
	Middleware []Middleware
	// PublishMiddleware wraps every Publish, Send and reply, the first
	// outermost.
	PublishMiddleware []PublishMiddleware
	// Logger gets the log: see the package documentation for its levels and
	// attributes. slog's default logger is never touched.
	//
	// Default: discards.
	Logger *slog.Logger
	// Observer gets told what happens.
	Observer *Observer
}

const (
	defaultIdleTimeout     = time.Minute
	defaultShutdownTimeout = 30 * time.Second
	defaultMaxInFlight     = 256
	defaultMaxPending      = 10_000
)

// one returns the single option argument of a call, or a new zero one.
func one[T any](what string, opts []*T) T { return *pick(what, opts) }

// pick is one for options that are only read: it copies nothing.
func pick[T any](what string, opts []*T) *T {
	switch {
	case len(opts) > 1:
		panic("amqpflow: " + what + ": at most one options argument")
	case len(opts) == 1 && opts[0] != nil:
		return opts[0]
	default:
		return new(T)
	}
}

// withDefaults returns o completed, and what is wrong with it.
func (o Options) withDefaults() (Options, []error) {
	var bad []error
	wrong := func(field string, err error) { bad = append(bad, &OptionError{Field: "Options." + field, Err: err}) }
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if 0 < o.IdleTimeout && o.IdleTimeout < time.Millisecond {
		wrong("IdleTimeout", fmt.Errorf("%v is under a millisecond", o.IdleTimeout))
	}
	if o.ShutdownTimeout == 0 {
		o.ShutdownTimeout = defaultShutdownTimeout
	}
	if o.ShutdownTimeout < 0 {
		wrong("ShutdownTimeout", fmt.Errorf("%v is negative", o.ShutdownTimeout))
	}
	if o.MaxSessions < 0 || o.MaxSessions > 1<<16 {
		wrong("MaxSessions", fmt.Errorf("%d is not from 1 to %d", o.MaxSessions, 1<<16))
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = defaultMaxInFlight
	}
	if o.MaxPending == 0 {
		o.MaxPending = defaultMaxPending
	}
	if o.MaxInFlight < 1 {
		wrong("MaxInFlight", fmt.Errorf("%d is negative", o.MaxInFlight))
	}
	for i, m := range o.Middleware {
		if m == nil {
			wrong("Middleware", fmt.Errorf("number %d is nil", i))
		}
	}
	for i, m := range o.PublishMiddleware {
		if m == nil {
			wrong("PublishMiddleware", fmt.Errorf("number %d is nil", i))
		}
	}
	if !o.Dialect.Valid() {
		wrong("Dialect", errors.New("is unknown"))
	}
	if len(o.Codecs) == 0 {
		o.Codecs = []Codec{JSON()}
	}
	if err := codecs(o.Codecs).check(); err != nil {
		wrong("Codecs", err)
	}
	if o.Properties == nil {
		o.Properties = defaultProperties()
	}
	if err := marshalable(o.Properties); err != nil {
		wrong("Properties", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = &Observer{}
	}
	return o, bad
}
