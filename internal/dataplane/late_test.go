package dataplane

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// What the peer leaves unanswered is freed by the next step further out: an attach
// or a detach by the session's END, an END by Abort. What comes late all the same
// harms nobody.
func TestConn_missingAndLateAnswers(t *testing.T) {
	type env struct {
		t  *testing.T
		r  *rig
		s  *Session
		as *amqp.Session
	}
	for name, f := range map[string]func(env){
		"attach": func(e env) {
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeAttach: true} })
			l, err := e.s.Expect(wire.RoleReceiver, "l", LinkOptions{})
			require.NoError(e.t, err)
			attached := make(chan error, 1)
			go1(e.t, func() {
				_, err := e.as.NewReceiver(e.t.Context(), "q", &amqp.ReceiverOptions{Name: "l", Credit: -1})
				attached <- err
			})
			synctest.Wait()
			assert.Empty(e.t, attached)
			require.ErrorIs(e.t, l.Grant(1, true), errNotAttached)
			require.NoError(e.t, e.as.Close(e.t.Context()))
			require.Error(e.t, <-attached)
			require.ErrorIs(e.t, l.Err(), ErrClosed)
		},
		"attach, late": func(e env) {
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeAttach: true, wire.CodeEnd: true} })
			l, err := e.s.Expect(wire.RoleReceiver, "l", LinkOptions{})
			require.NoError(e.t, err)
			attached := make(chan error, 1)
			go1(e.t, func() {
				_, err := e.as.NewReceiver(e.t.Context(), "q", &amqp.ReceiverOptions{Name: "l", Credit: -1})
				attached <- err
			})
			ended := make(chan error, 1)
			synctest.Wait()
			go1(e.t, func() { ended <- e.as.Close(e.t.Context()) })
			<-e.s.Done()
			require.ErrorIs(e.t, l.Err(), ErrClosed)
			e.r.p.send(0, &wire.Attach{Name: "l", Role: wire.RoleSender, SndSettleMode: 2, Source: &wire.Source{}})
			synctest.Wait()
			require.ErrorIs(e.t, l.Grant(1, true), ErrLinkLost)
			e.r.p.send(0, &wire.End{})
			require.NoError(e.t, <-ended)
			<-attached
		},
		"detach": func(e env) {
			l, rcv, _ := e.r.receiver(e.s, e.as, "l", LinkOptions{})
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeDetach: true} })
			detached := make(chan error, 1)
			go1(e.t, func() { detached <- rcv.Close(e.t.Context()) })
			synctest.Wait()
			assert.Empty(e.t, detached)
			require.ErrorIs(e.t, l.Err(), ErrClosed)
			require.NoError(e.t, e.as.Close(e.t.Context()))
			<-detached
		},
		"detach, late": func(e env) {
			_, rcv, _ := e.r.receiver(e.s, e.as, "l", LinkOptions{})
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeDetach: true, wire.CodeEnd: true} })
			detached, ended := make(chan error, 1), make(chan error, 1)
			go1(e.t, func() { detached <- rcv.Close(e.t.Context()) })
			synctest.Wait()
			go1(e.t, func() { ended <- e.as.Close(e.t.Context()) })
			synctest.Wait()
			e.r.p.send(0, &wire.Detach{Closed: true})
			require.NoError(e.t, <-detached)
			e.r.p.send(0, &wire.End{})
			require.NoError(e.t, <-ended)
		},
		"detach, crossing": func(e env) {
			l, rcv, _ := e.r.receiver(e.s, e.as, "l", LinkOptions{})
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeDetach: true} })
			detached := make(chan error, 1)
			go1(e.t, func() { detached <- rcv.Close(e.t.Context()) })
			synctest.Wait()
			e.r.p.send(0, &wire.Detach{Closed: true, Error: &wire.Error{Condition: "amqp:link:detach-forced"}})
			<-detached
			var lost *PeerError
			require.ErrorAs(e.t, l.Err(), &lost)
			assert.Equal(e.t, wire.Symbol("amqp:link:detach-forced"), lost.Err.Condition)
			require.NoError(e.t, e.as.Close(e.t.Context()))
		},
		"end": func(e env) {
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeEnd: true} })
			ended := make(chan error, 1)
			go1(e.t, func() { ended <- e.as.Close(e.t.Context()) })
			synctest.Wait()
			assert.Empty(e.t, ended)
			require.ErrorIs(e.t, e.s.Err(), ErrClosed)
			e.r.c.Abort(nil)
			require.Error(e.t, <-ended)
		},
		"end, late": func(e env) {
			e.r.p.locked(func() { e.r.p.opt.mute = map[uint64]bool{wire.CodeEnd: true} })
			ended := make(chan error, 1)
			go1(e.t, func() { ended <- e.as.Close(e.t.Context()) })
			synctest.Wait()
			e.r.p.send(0, &wire.End{Error: &wire.Error{Condition: "amqp:internal-error"}})
			require.NoError(e.t, <-ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{})
				s, as := r.session()
				f(env{t, r, s, as})
				if isOver(r.c) {
					return
				}
				// The connection is as good as new.
				r.p.locked(func() { r.p.opt.mute = nil })
				s, as = r.session()
				l, _, pl := r.sender(s, as, "after")
				pl.credit(1)
				sendAll(t, l, 1)
			})
		})
	}
}

// closer counts.
type closer struct {
	io.Closer
	n atomic.Int32
}

func (c *closer) Close() error {
	c.n.Add(1)
	return c.Closer.Close()
}

// notClosed is a connection whose own Close must not be called: with TLS it waits.
type notClosed struct {
	net.Conn
	t *testing.T
}

func (c notClosed) Close() error {
	c.t.Error("closed above the raw socket")
	return nil
}

func TestConn_abortClosesTheRawSocketOnce(t *testing.T) {
	a, b := net.Pipe()
	raw := &closer{Closer: a}
	c := New(notClosed{a, t}, Options{Raw: raw})
	for range 3 {
		c.Abort(nil)
		require.NoError(t, c.Close())
	}
	c.Wait()
	assert.EqualValues(t, 1, raw.n.Load())
	_, err := b.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, c.Err(), ErrClosed)
}
