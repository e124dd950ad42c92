package dataplane

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// The tests in this file are about go-amqp v1.7, without the plane: what the plane
// relies on, and the faults it is built around. One that fails after an upgrade says
// what to look at.

// direct is go-amqp on a pipe to a scripted peer.
func direct(t *testing.T, o peerOptions, co *amqp.ConnOptions) (*amqp.Conn, *peer) {
	t.Helper()
	a, b := net.Pipe()
	p := newPeer(t, b, o)
	ac, err := amqp.NewConn(context.Background(), a, co)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = ac.Close()
		p.hang()
		p.wg.Wait()
	})
	return ac, p
}

// manual are the options of the receiver "r" that leaves credit to us.
func manual() *amqp.ReceiverOptions {
	return &amqp.ReceiverOptions{Name: "r", Credit: -1}
}

func TestGoAMQP_writesNoDataFramesOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ac, p := direct(t, peerOptions{open: wire.Open{IdleTimeout: 2000}}, &amqp.ConnOptions{IdleTimeout: -1})
		as, err := ac.NewSession(t.Context(), nil)
		require.NoError(t, err)
		rcv, err := as.NewReceiver(t.Context(), "q", manual())
		require.NoError(t, err)
		snd, err := as.NewSender(t.Context(), "q", &amqp.SenderOptions{Name: "s"})
		require.NoError(t, err)
		pass(10 * time.Minute)
		require.NoError(t, rcv.Close(t.Context()))
		require.NoError(t, snd.Close(t.Context()))
		require.NoError(t, as.Close(t.Context()))
		_ = ac.Close() // a pipe's own error for a closed pipe
		synctest.Wait()
		assert.Equal(t, []string{
			"open", "begin 0", "attach receiver r 0", "attach sender s 1",
			"detach 0", "detach 1", "end 0", "close",
		}, p.seen())
	})
}

func TestGoAMQP_controlFramesSayWhatThePlaneExpects(t *testing.T) {
	ac, p := direct(t, peerOptions{}, &amqp.ConnOptions{MaxFrameSize: 512, IdleTimeout: 30 * time.Second})
	as, err := ac.NewSession(t.Context(), nil)
	require.NoError(t, err)
	rcv, err := as.NewReceiver(t.Context(), "from", manual())
	require.NoError(t, err)
	_, err = as.NewSender(t.Context(), "to", &amqp.SenderOptions{Name: "s"})
	require.NoError(t, err)
	require.NoError(t, rcv.Close(t.Context()))
	p.mu.Lock() // the close was answered, so all of this is in the log
	defer p.mu.Unlock()
	o, b := p.frames[0].(*wire.Open), p.frames[1].(*wire.Begin)
	assert.EqualValues(t, 65536, o.MaxFrameSize, "512 becomes 65536")
	assert.EqualValues(t, 15_000, o.IdleTimeout, "half of what it is told")
	assert.Equal(t, wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: phantomHandle - 1}, *b)
	s := p.sessions[0]
	snd := s.links[1].attach
	assert.Equal(t, "to", snd.Target.Address)
	assert.Equal(t, wire.Some(0), snd.InitialDeliveryCount)
	d := p.frames[4].(*wire.Detach)
	assert.True(t, d.Closed, "always closing")
	assert.Nil(t, d.Error)
}

func TestGoAMQP_attachWithoutTerminusReturnsTheDetachsError(t *testing.T) {
	ac, p := direct(t, peerOptions{refuse: map[string]string{"r": "amqp:not-found"}}, nil)
	as, err := ac.NewSession(t.Context(), nil)
	require.NoError(t, err)
	_, err = as.NewReceiver(t.Context(), "q", manual())
	var ae *amqp.Error
	require.ErrorAs(t, err, &ae)
	assert.Equal(t, amqp.ErrCondNotFound, ae.Condition)
	p.await("its detach", func() bool { return last(p.log) == "detach 0" })
}

func TestGoAMQP_answersNonClosingDetachWithAnErrorOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ac, p := direct(t, peerOptions{mute: map[uint64]bool{wire.CodeDetach: true}}, nil)
		as, err := ac.NewSession(t.Context(), nil)
		require.NoError(t, err)
		_, err = as.NewReceiver(t.Context(), "q", manual())
		require.NoError(t, err)
		p.session(0).link("r").detach(false, nil)
		synctest.Wait()
		p.locked(func() {
			d := p.frames[len(p.frames)-1].(*wire.Detach)
			assert.Equal(t, wire.Symbol("amqp:not-implemented"), d.Error.Condition)
		})
	})
}

func TestGoAMQP_diesOfWhatItCannotDecodeAndThePlaneDoesNot(t *testing.T) {
	say := wire.Open{Properties: wire.Map{{Key: wire.Symbol("k"), Value: wire.Char('x')}}}
	a, b := net.Pipe()
	p := newPeer(t, b, peerOptions{open: say})
	_, err := amqp.NewConn(t.Context(), a, nil)
	require.ErrorContains(t, err, "char not implemented")
	p.hang()
	p.wg.Wait()

	r := newRig(t, rigOptions{peer: peerOptions{open: say}})
	assert.Equal(t, map[string]any{"k": wire.Char('x')}, r.c.Peer().Properties)
}

func TestGoAMQP_diesOfAnAttachOverThePeersFrameSize(t *testing.T) {
	ac, _ := direct(t, peerOptions{open: wire.Open{MaxFrameSize: 512}}, nil)
	as, err := ac.NewSession(t.Context(), nil)
	require.NoError(t, err)
	_, err = as.NewSender(t.Context(), strings.Repeat("x", 600), nil)
	require.Error(t, err)
	<-ac.Done()
}

func TestGoAMQP_closesTheConnectionPastChannelMaxAndSaysNothing(t *testing.T) {
	// Over TCP: a closed pipe is an error that go-amqp does not know.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	b, err := listener.Accept()
	require.NoError(t, err)
	p := newPeer(t, b, peerOptions{})
	ac, err := amqp.NewConn(t.Context(), a, &amqp.ConnOptions{MaxSessions: 1})
	require.NoError(t, err)
	for err == nil {
		_, err = ac.NewSession(t.Context(), nil)
	}
	require.ErrorContains(t, err, "channel max")
	<-ac.Done()
	assert.NoError(t, ac.Err())
	p.hang()
	p.wg.Wait()
	require.NoError(t, listener.Close())
}

func TestGoAMQP_aContextThatEndsLeavesALinksNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ac, _ := direct(t, peerOptions{mute: map[uint64]bool{wire.CodeAttach: true}}, nil)
		as, err := ac.NewSession(t.Context(), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = as.NewReceiver(ctx, "q", manual())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = as.NewReceiver(t.Context(), "q", manual())
		require.ErrorContains(t, err, "already exists")
	})
}
