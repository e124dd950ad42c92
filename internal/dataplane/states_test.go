package dataplane

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// linkStates brings a link of a bare plane into each state. The frames under test
// then name the handle 3, which is the peer's for the link.
var linkStates = map[string]func(r *bare, s *Session){
	"none": func(*bare, *Session) {},
	"attach sent": func(r *bare, s *Session) {
		r.p.opt.mute = map[uint64]bool{wire.CodeAttach: true}
		r.expect(s, "l", 3, wire.RoleReceiver)
	},
	"receiver": func(r *bare, s *Session) {
		l, _ := r.attach(s, "l", 3, wire.RoleReceiver)
		require.NoError(r.t, l.Grant(5, true))
	},
	"sender": func(r *bare, s *Session) {
		r.attach(s, "l", 3, wire.RoleSender)
	},
	"refused": func(r *bare, s *Session) {
		r.p.opt.mute = map[uint64]bool{wire.CodeAttach: true}
		r.expect(s, "l", 3, wire.RoleReceiver)
		synctest.Wait()
		r.p.send(0, &wire.Attach{Name: "l", Handle: 3, Role: wire.RoleSender, SndSettleMode: wire.SndMixed})
		var a wire.Attach
		r.read(a.Decode)
	},
	"detach received": func(r *bare, s *Session) {
		_, pl := r.attach(s, "l", 3, wire.RoleReceiver)
		pl.detach(true, nil)
		var d wire.Detach
		r.read(d.Decode)
	},
	"detach sent": func(r *bare, s *Session) {
		l, _ := r.attach(s, "l", 3, wire.RoleReceiver)
		require.NoError(r.t, l.Grant(5, true))
		synctest.Wait()
		r.p.opt.mute = map[uint64]bool{wire.CodeDetach: true}
		r.write(0, &wire.Detach{Handle: 3, Closed: true})
	},
	"gone": func(r *bare, s *Session) {
		r.attach(s, "l", 3, wire.RoleReceiver)
		r.write(0, &wire.Detach{Handle: 3, Closed: true})
		var d wire.Detach
		r.read(d.Decode)
	},
}

// frameKinds are the frames a peer can send about a link.
var frameKinds = map[string]performative{
	"attach": &wire.Attach{
		Name: "l", Handle: 3, Role: wire.RoleSender, SndSettleMode: wire.SndMixed,
		Source: &wire.Source{}, InitialDeliveryCount: wire.Some(0),
	},
	"attach of another": &wire.Attach{Name: "x", Handle: 9, Role: wire.RoleSender, Source: &wire.Source{}},
	"flow": &wire.Flow{
		NextIncomingID: wire.Some(0), IncomingWindow: 100, Handle: wire.Some(3),
		DeliveryCount: wire.Some(0), LinkCredit: wire.Some(0), Echo: true,
	},
	"session flow":    &wire.Flow{NextIncomingID: wire.Some(0), IncomingWindow: 100, Echo: true},
	"transfer":        &wire.Transfer{Handle: 3, DeliveryID: wire.Some(0), DeliveryTag: []byte("t")},
	"disposition":     &wire.Disposition{Role: wire.RoleSender, First: 0, Last: 5, Settled: true},
	"own disposition": &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 5, Settled: true},
	"detach":          &wire.Detach{Handle: 3, Closed: true},
	"end":             &wire.End{},
	"close":           &wire.Close{},
	"open":            &wire.Open{ContainerID: "again", MaxFrameSize: 512},
	"begin":           &wire.Begin{RemoteChannel: wire.Some(0)},
}

// Which of them are legal where. Whatever is not fails the connection.
var legal = map[string]string{
	"attach":            "attach sent",
	"attach of another": "",
	"flow":              "receiver sender refused, detach sent",
	"transfer":          "receiver, detach sent",
	"detach":            "receiver sender refused, detach sent",
	"open":              "",
	"begin":             "",
}

func TestConn_everyFrameInEveryLinkState(t *testing.T) {
	for state, reach := range linkStates {
		for kind, frame := range frameKinds {
			t.Run(state+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newBare(t, rigOptions{})
					r.open()
					s, _ := r.begin()
					reach(r, s)
					synctest.Wait()
					r.p.send(0, frame)
					synctest.Wait()
					where, listed := legal[kind]
					if !listed || strings.Contains(where, state) {
						assert.False(t, isOver(r.c), "%v", r.c.Err())
						return
					}
					require.True(t, isOver(r.c), "must fail the connection")
					assert.ErrorContains(t, r.c.Err(), "broke the protocol")
					assert.ErrorIs(t, s.Err(), r.c.Err())
				})
			})
		}
	}
}

func TestConn_everyFrameAfterOurEnd(t *testing.T) {
	for kind, frame := range frameKinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBare(t, rigOptions{})
				r.open()
				s, _ := r.begin()
				l, _ := r.attach(s, "l", 3, wire.RoleReceiver)
				require.NoError(t, l.Grant(5, true))
				synctest.Wait()
				r.p.opt.mute = map[uint64]bool{wire.CodeEnd: true}
				r.write(0, &wire.End{})
				synctest.Wait()
				require.ErrorIs(t, l.Grant(5, true), ErrLinkLost)
				require.ErrorIs(t, l.Settle(0, accepted), ErrLinkLost)
				require.ErrorIs(t, s.Err(), ErrClosed)
				r.p.send(0, frame)
				synctest.Wait()
				switch kind {
				case "attach", "attach of another", "open", "begin":
					assert.True(t, isOver(r.c))
				default:
					assert.False(t, isOver(r.c), "%v", r.c.Err())
				}
			})
		})
	}
}

// Transfers that come after our DETACH are counted for the window, and their
// payload is dropped.
func TestLink_countsTransfersAfterItsDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		s, _ := r.begin()
		l, pl := r.attach(s, "l", 3, wire.RoleReceiver)
		keep, pkeep := r.attach(s, "keep", 4, wire.RoleReceiver)
		require.NoError(t, l.Grant(300, true))
		synctest.Wait()
		r.p.opt.mute = map[uint64]bool{wire.CodeDetach: true}
		r.write(0, &wire.Detach{Handle: 3, Closed: true})
		synctest.Wait()
		for range 260 {
			pl.deliver(0, false, make([]byte, 100))
		}
		synctest.Wait()
		assert.Zero(t, l.Deliveries(make([]Delivery, 1)))
		require.NoError(t, keep.Grant(5, true))
		synctest.Wait()
		r.p.locked(func() {
			f, ok := r.p.frames[len(r.p.frames)-1].(*wire.Flow)
			require.True(t, ok)
			assert.EqualValues(t, 260, f.NextIncomingID.Value)
		})
		r.p.send(0, &wire.Detach{Handle: 3, Closed: true})
		pkeep.deliver(0, false, []byte("x"))
		assert.Len(t, take(t, keep, 1), 1)
	})
}

// Whoever is told that a link or session is lost finds Done closed: there is no
// moment between the two.
func TestDone_isClosedWithTheLoss(t *testing.T) {
	cause := errors.New("cut")
	for name, lose := range map[string]func(*Session, *Link, *after){
		"link":    func(_ *Session, l *Link, a *after) { l.loseLocked(cause, a) },
		"session": func(s *Session, _ *Link, a *after) { s.loseLocked(cause, a) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			s, as := r.session()
			l, _, _ := r.sender(s, as, "l")
			var a after
			s.mu.Lock()
			lose(s, l, &a)
			select {
			case <-l.Done():
			default:
				assert.Fail(t, "the lock is about to be free, and Done is open")
			}
			s.mu.Unlock()
			a.run(r.c)
			require.ErrorIs(t, l.Err(), cause)
		})
	}
}
