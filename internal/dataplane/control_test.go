package dataplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestConn_announcesItsOwnLimits(t *testing.T) {
	r := newRig(t, rigOptions{
		Options: Options{MaxFrame: 512, MaxSessions: 3},
		peer: peerOptions{open: wire.Open{
			MaxFrameSize: 4096, ChannelMax: 9, IdleTimeout: 5000,
			OfferedCapabilities: []wire.Symbol{"A"},
			Properties:          wire.Map{{Key: wire.Symbol("product"), Value: "peer"}, {Key: uint32(1), Value: 1}},
		}},
	})
	r.p.locked(func() {
		o, ok := r.p.frames[0].(*wire.Open)
		require.True(t, ok)
		assert.EqualValues(t, 512, o.MaxFrameSize)
		assert.EqualValues(t, 2, o.ChannelMax)
	})
	o := r.c.Peer()
	assert.Equal(t, "peer", o.ContainerID)
	assert.EqualValues(t, 4096, o.MaxFrame)
	assert.EqualValues(t, 9, o.ChannelMax)
	assert.Equal(t, 5*time.Second, o.Idle)
	assert.Equal(t, map[string]any{"product": "peer"}, o.Properties)
	assert.Equal(t, []string{"A"}, o.Offered)
	assert.Equal(t, PhaseRunning, r.c.Phase())
}

func TestConn_keepsTheLimitOfChannels(t *testing.T) {
	r := newRig(t, rigOptions{peer: peerOptions{open: wire.Open{ChannelMax: 1}}})
	_, as := r.session()
	r.session()
	_, err := r.c.ExpectSession()
	require.ErrorIs(t, err, ErrLimit)
	require.NoError(t, as.Close(t.Context()))
	s, err := r.c.ExpectSession()
	require.NoError(t, err)
	_, err = r.c.ExpectSession()
	require.ErrorIs(t, err, ErrLimit)
	s.Forget()
	s.Forget()
	<-s.Done()
	r.session()
	_, err = r.c.ExpectSession()
	require.ErrorIs(t, err, ErrLimit)
}

func TestSession_keepsTheLimitOfHandles(t *testing.T) {
	r := newRig(t, rigOptions{peer: peerOptions{begin: wire.Begin{HandleMax: 1}, refuse: map[string]string{"no": "amqp:not-found"}}})
	s, as := r.session()
	r.sender(s, as, "a")
	_, b, _ := r.receiver(s, as, "b", LinkOptions{})
	_, err := s.Expect(wire.RoleSender, "c", LinkOptions{})
	require.ErrorIs(t, err, ErrLimit)
	require.NoError(t, b.Close(t.Context()))
	l, err := s.Expect(wire.RoleSender, "no", LinkOptions{})
	require.NoError(t, err)
	_, err = as.NewSender(t.Context(), "q", &amqp.SenderOptions{Name: "no"})
	require.ErrorContains(t, err, "amqp:not-found")
	<-l.Done()
	var pe *PeerError
	require.ErrorAs(t, l.Err(), &pe)
	assert.Equal(t, "detach", pe.Performative)
	assert.Equal(t, wire.Symbol("amqp:not-found"), pe.Err.Condition)
	l, err = s.Expect(wire.RoleSender, "d", LinkOptions{})
	require.NoError(t, err)
	l.Forget()
	require.ErrorIs(t, l.Err(), ErrClosed)
	r.sender(s, as, "e")
}

// go-amqp gives a handle away when it reads a DETACH, before it has answered it,
// and a channel when it reads an END.
func TestConn_parksAttachAndBeginUntilTheirPlaceIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		s, ps := r.begin()
		_, pl := r.attach(s, "old", 0, wire.RoleSender)
		pl.detach(false, nil)
		var d wire.Detach
		r.read(d.Decode)
		assert.True(t, d.Closed, "go-amqp is told of closing detaches only")
		r.expect(s, "new", 0, wire.RoleSender)
		synctest.Wait()
		assert.Equal(t, "attach sender old 0", last(r.p.seen()))
		r.write(0, &wire.Detach{Handle: 0, Closed: true})
		var a wire.Attach
		r.read(a.Decode)
		assert.Equal(t, "new", a.Name)
		r.p.locked(func() {
			d, ok := r.p.frames[len(r.p.frames)-2].(*wire.Detach)
			require.True(t, ok)
			assert.False(t, d.Closed, "the answer copies the peer's flag")
		})

		ps.end(nil)
		var e wire.End
		r.read(e.Decode)
		next, err := r.c.ExpectSession()
		require.NoError(t, err)
		r.write(0, &wire.Begin{IncomingWindow: 1, OutgoingWindow: 1})
		synctest.Wait()
		assert.Equal(t, "attach sender new 0", last(r.p.seen()))
		r.write(0, &wire.End{})
		var b wire.Begin
		r.read(b.Decode)
		assert.Equal(t, []string{"end 0", "begin 0"}, r.p.seen()[len(r.p.seen())-2:])
		require.NoError(t, next.Err())
		r.attach(next, "again", 0, wire.RoleSender)
	})
}

func TestSession_reusesHandlesAndChannels(t *testing.T) {
	n := modelSize(10_000)
	r := newRig(t, rigOptions{peer: peerOptions{channel: 5, handle: 7}})
	s, as := r.session()
	for i := range n {
		// A name of its own: go-amqp's Close may return before it has freed the name.
		l, snd, pl := r.sender(s, as, fmt.Sprint("l", i))
		pl.credit(1)
		sendAll(t, l, 1)
		if i%2 == 0 {
			require.NoError(t, snd.Close(t.Context()))
		} else {
			// The peer's detach: go-amqp's answer and the next attach race.
			pl.detach(true, nil)
			<-l.Done()
			r.awaitGone(s)
		}
	}
	for i := range n {
		s, as := r.session()
		if i%2 == 0 {
			require.NoError(t, as.Close(t.Context()))
		} else {
			r.p.session(s.channel).end(nil)
			<-s.Done()
		}
	}
	require.NoError(t, r.c.Err())
	r.c.mu.Lock()
	assert.LessOrEqual(t, len(r.c.all), 3)
	r.c.mu.Unlock()
}

// awaitGone waits until go-amqp has given up the name of the link it had.
func (r *rig) awaitGone(s *Session) {
	for {
		r.p.mu.Lock()
		changed := r.p.changed
		r.p.mu.Unlock()
		s.mu.Lock()
		n := len(s.ours)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		<-changed
	}
}

func TestConn_answersAnAttachThatIsTooLargeItself(t *testing.T) {
	r := newRig(t, rigOptions{peer: peerOptions{open: wire.Open{MaxFrameSize: 512}}})
	s, as := r.session()
	for _, role := range []wire.Role{wire.RoleSender, wire.RoleReceiver} {
		l, err := s.Expect(role, "big", LinkOptions{})
		require.NoError(t, err)
		address := strings.Repeat("x", 1000)
		if role == wire.RoleSender {
			_, err = as.NewSender(t.Context(), address, &amqp.SenderOptions{Name: "big"})
		} else {
			_, err = as.NewReceiver(t.Context(), address, &amqp.ReceiverOptions{Name: "big", Credit: -1})
		}
		require.ErrorContains(t, err, "frame-size-too-small")
		<-l.Done()
		require.ErrorContains(t, l.Err(), "the peer takes 512")
	}
	l, _, pl := r.sender(s, as, "small")
	pl.credit(1)
	sendAll(t, l, 1)
	assert.Len(t, r.p.seen(), 3, "open, begin and the attach that fits")
}

func TestLink_detachSaysWhatItWasTold(t *testing.T) {
	r := newRig(t, rigOptions{peer: peerOptions{open: wire.Open{MaxFrameSize: 512}}})
	s, as := r.session()
	detach := func() *wire.Detach {
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		d, ok := r.p.frames[len(r.p.frames)-1].(*wire.Detach)
		require.True(t, ok)
		return d
	}
	l, rcv, pl := r.receiver(s, as, "a", LinkOptions{})
	require.NoError(t, l.Grant(5, true))
	pl.deliver(0, false, nil)
	take(t, l, 1)
	require.NoError(t, l.Settle(0, accepted))
	l.SetDetach(&wire.Error{Condition: "c", Description: strings.Repeat("é", 600)}, true)
	require.NoError(t, rcv.Close(t.Context()))
	d := detach()
	assert.False(t, d.Closed)
	assert.Equal(t, wire.Symbol("c"), d.Error.Condition)
	assert.Contains(t, d.Error.Description, "éé", "cut to the peer's frame size")
	assert.Equal(t, "disposition receiver 0-0", r.p.seen()[len(r.p.seen())-2], "what was settled goes first")
	require.ErrorIs(t, l.Err(), ErrClosed)
	require.ErrorIs(t, l.Settle(0, accepted), ErrLinkLost)

	_, rcv, _ = r.receiver(s, as, "b", LinkOptions{NonClosing: true})
	require.NoError(t, rcv.Close(t.Context()))
	assert.False(t, detach().Closed)
	_, rcv, _ = r.receiver(s, as, "c", LinkOptions{})
	require.NoError(t, rcv.Close(t.Context()))
	assert.True(t, detach().Closed)
	assert.Nil(t, detach().Error)
}

func TestConn_failsOnFramesThatGoAMQPDoesNotWrite(t *testing.T) {
	for name, f := range map[string]performative{
		"transfer":          &wire.Transfer{},
		"flow":              &wire.Flow{},
		"disposition":       &wire.Disposition{},
		"begin unexpected":  &wire.Begin{},
		"attach unexpected": &wire.Attach{Name: "x", Source: &wire.Source{}},
		"detach unknown":    &wire.Detach{Handle: 9},
		"sasl":              &wire.SASLInit{Mechanism: "X"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBare(t, rigOptions{})
				r.open()
				r.begin()
				err := r.tryWrite(0, f)
				require.ErrorContains(t, err, "unexpected frame from go-amqp")
				assert.True(t, isOver(r.c))
				require.Equal(t, err, r.c.Err())
				_, again := r.c.Write(make([]byte, 8))
				require.Error(t, again)
			})
		})
	}
}

func TestConn_readGivesUnitsThenTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		_, ps := r.begin()
		ps.end(nil)
		synctest.Wait()
		r.c.Abort(fmt.Errorf("enough: %w", context.Canceled))
		small := make([]byte, 3)
		n, err := r.c.Read(small)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
		units, err := r.rest()
		assert.Equal(t, 1, units, "the rest of the END")
		require.ErrorIs(t, err, context.Canceled)
		n, err = r.c.Read(nil)
		assert.Zero(t, n)
		require.NoError(t, err)
		require.NoError(t, r.c.SetDeadline(r.c.rd.refresh))
		assert.Equal(t, "pipe", r.c.LocalAddr().Network())
		assert.Equal(t, "pipe", r.c.RemoteAddr().Network())
	})
}
