package amqptest_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func rightPassword(t *testing.T, p *peer) string {
	u, err := url.Parse(p.url)
	require.NoError(t, err)
	password, _ := u.User.Password()
	return dialRaw(t, p).sasl("PLAIN", []byte("\x00"+u.User.Username()+"\x00"+password))
}

func wrongPassword(t *testing.T, p *peer) string {
	u, err := url.Parse(p.url)
	require.NoError(t, err)
	return dialRaw(t, p).sasl("PLAIN", []byte("\x00"+u.User.Username()+"\x00wrong"))
}

func unknownUser(t *testing.T, p *peer) string {
	return dialRaw(t, p).sasl("PLAIN", []byte("\x00nobody\x00nothing"))
}

func anonymous(t *testing.T, p *peer) string {
	return dialRaw(t, p).sasl("ANONYMOUS", []byte("truth"))
}

func unknownMechanism(t *testing.T, p *peer) string {
	return dialRaw(t, p).sasl("NTLM", []byte("truth"))
}

// noSASL opens the connection without a SASL layer.
func noSASL(t *testing.T, p *peer) string {
	r := dialRaw(t, p)
	r.header(wire.ProtoAMQP)
	r.send(&wire.Open{ContainerID: unique("truth"), MaxFrameSize: 65536, ChannelMax: 10})
	switch o := r.next().(type) {
	case *wire.Open:
		return "opened"
	case *wire.Close:
		return said("close", o.Error)
	}
	return "socket closed"
}

func mechanisms(t *testing.T, p *peer) string {
	r := dialRaw(t, p)
	r.header(wire.ProtoSASL)
	var m wire.SASLMechanisms
	require.NoError(t, m.Decode(r.frame().body))
	var names []string
	for _, s := range m.Mechanisms {
		names = append(names, string(s))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// otherProtocol asks for a version of AMQP that there is not.
func otherProtocol(t *testing.T, p *peer) string {
	r := dialRaw(t, p)
	r.write([]byte("AMQP\x00\x02\x00\x00"))
	for r.read() {
	}
	require.GreaterOrEqual(t, len(r.buf), 8)
	return fmt.Sprintf("AMQP %d %d %d %d", r.buf[4], r.buf[5], r.buf[6], r.buf[7])
}

func maxFrameSize(t *testing.T, p *peer) string { return fmt.Sprint(openRaw(t, p).open.MaxFrameSize) }
func channelMax(t *testing.T, p *peer) string   { return fmt.Sprint(openRaw(t, p).open.ChannelMax) }
func handleMax(t *testing.T, p *peer) string    { return fmt.Sprint(openRaw(t, p).begin.HandleMax) }
func idleTimeout(t *testing.T, p *peer) string  { return fmt.Sprint(openRaw(t, p).open.IdleTimeout) }

func product(t *testing.T, p *peer) string {
	for _, e := range openRaw(t, p).open.Properties {
		if e.Key == wire.Symbol("product") {
			return fmt.Sprint(e.Value)
		}
	}
	return none
}

func offered(t *testing.T, p *peer) string {
	var names []string
	for _, s := range openRaw(t, p).open.OfferedCapabilities {
		names = append(names, string(s))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// unknownVhost names a virtual host in OPEN as RabbitMQ's clients do.
func unknownVhost(t *testing.T, p *peer) string {
	r := dialRaw(t, p).authenticated(p)
	r.send(&wire.Open{ContainerID: unique("truth"), Hostname: "vhost:nowhere", MaxFrameSize: 65536, ChannelMax: 10})
	switch f := r.next().(type) {
	case *wire.Open:
		return "opened"
	case *wire.Close:
		return said("close", f.Error)
	}
	return "socket closed"
}

// sessionPastTheLast begins one on the channel above the peer's channel-max.
func sessionPastTheLast(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	if r.open.ChannelMax == 65535 {
		return "no limit"
	}
	r.sendOn(r.open.ChannelMax+1, &wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10})
	return r.reaction()
}

// linkPastTheLast attaches one on the handle above the peer's handle-max.
func linkPastTheLast(t *testing.T, p *peer) string {
	n := p.queue(t, queueOptions{})
	r := openRaw(t, p)
	if r.begin.HandleMax > 65535 {
		return "no limit"
	}
	a := r.attach(wire.RoleSender)
	a.Handle, a.Target = r.begin.HandleMax+1, n.target()
	r.send(a)
	return r.reaction()
}

// manySessions begins 100 and counts the answers.
func manySessions(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	n := min(100, int(r.open.ChannelMax)+1)
	for channel := 1; channel < n; channel++ {
		r.sendOn(uint16(channel), &wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10})
		await[wire.Begin](r)
	}
	return fmt.Sprint(n)
}

// heartbeats come from the peer when its client has said that it wants them.
func heartbeats(t *testing.T, p *peer) string {
	r := dialRaw(t, p).authenticated(p)
	r.send(&wire.Open{ContainerID: unique("truth"), MaxFrameSize: 65536, ChannelMax: 10, IdleTimeout: 1000})
	await[wire.Open](r)
	f := r.frame()
	require.NotNil(t, f)
	require.Empty(t, f.body)
	return "come"
}

func closeIsAnswered(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	r.send(&wire.Close{})
	return r.ending()
}

func endIsAnswered(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	r.send(&wire.End{})
	return r.ending()
}

// channelIsFreeAgain begins a session where another has ended.
func channelIsFreeAgain(t *testing.T, p *peer) string {
	r := openRaw(t, p)
	r.send(&wire.End{})
	await[wire.End](r)
	r.send(&wire.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10})
	await[wire.Begin](r)
	return "begun"
}
