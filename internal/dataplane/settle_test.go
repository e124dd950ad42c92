package dataplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// More outcomes than are kept side by side, on a connection with the smallest
// frames: each delivery gets its own, and what does not fit is cut.
func TestLink_settlesWithAsManyOutcomesAsThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{peer: peerOptions{open: wire.Open{MaxFrameSize: 512}}})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		const n = 3 * maxGroups
		require.NoError(t, l.Grant(n, true))
		synctest.Wait()
		for range n {
			pl.deliver(0, false, nil)
		}
		take(t, l, n)
		big := wire.Map{{Key: wire.Symbol("k"), Value: strings.Repeat("v", 2000)}}
		reject := func(condition, description string) *wire.State {
			return &wire.State{Kind: wire.StateRejected, Error: &wire.Error{
				Condition: wire.Symbol(condition), Description: description, Info: big,
			}}
		}
		require.NoError(t, l.Settle(0, reject("c", strings.Repeat("ü", 1000))))
		require.NoError(t, l.Settle(1, reject(strings.Repeat("c", 1000), "d")))
		require.NoError(t, l.Settle(2, &wire.State{Kind: wire.StateModified, DeliveryFailed: true, Annotations: big}))
		require.NoError(t, l.Settle(3, nil))
		for id := uint32(4); id < n; id++ {
			st := &wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "c", Description: fmt.Sprint(id)}}
			require.NoError(t, l.Settle(id, st))
			st.Error.Description = "changed" // nothing of it is kept
		}
		pass(settleDelay)
		synctest.Wait()
		r.p.locked(func() {
			got := pl.s.settled
			require.Len(t, got, n)
			assert.Regexp(t, "^ü{100,}$", got[0].Error.Description)
			assert.Empty(t, got[0].Error.Info)
			assert.Regexp(t, "^c{100,}$", string(got[1].Error.Condition))
			assert.True(t, got[2].DeliveryFailed)
			assert.Empty(t, got[2].Annotations)
			assert.Equal(t, wire.StateNone, got[3].Kind)
			for id := uint32(4); id < n; id++ {
				assert.Equal(t, fmt.Sprint(id), got[id].Error.Description)
			}
		})
	})
}

func TestLink_refusesADeliveryIDThatIsOutstanding(t *testing.T) {
	r := newRig(t, rigOptions{})
	s, as := r.session()
	l, _, pl := r.receiver(s, as, "in", LinkOptions{})
	require.NoError(t, l.Grant(5, true))
	for range 2 {
		pl.send(&wire.Transfer{DeliveryID: wire.Some(9), DeliveryTag: []byte("t")}, nil)
	}
	<-r.c.Done()
	require.ErrorContains(t, r.c.Err(), "delivery-id used twice")
	credit, outstanding := l.Credit()
	assert.Zero(t, credit+outstanding)
}

// Deliveries of one session need not have ids that follow each other.
func TestLink_takesDeliveryIDsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(10, true))
		synctest.Wait()
		ids := []uint32{7, 3, 1 << 31, 1<<32 - 1, 0, 4}
		for _, id := range ids {
			r.p.locked(func() { pl.s.outstanding[id] = pl; pl.count++ })
			pl.send(&wire.Transfer{DeliveryID: wire.Some(id), DeliveryTag: []byte("t")}, nil)
		}
		for i, d := range take(t, l, len(ids)) {
			assert.Equal(t, ids[i], d.ID)
		}
		require.Empty(t, l.SettleAll(ids, accepted))
		synctest.Wait()
		r.p.locked(func() { assert.Empty(t, pl.s.outstanding) })
	})
}

func TestLink_leavingTheLineLeavesTheOthersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.sender(s, as, "out")
		ctx, cancel := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{t.Context(), ctx, t.Context()} {
			go1(t, func() {
				_, err := l.Send(ctx, []byte{byte(i)}, SendOptions{})
				if i == 1 {
					assert.ErrorIs(t, err, ErrNotSent)
					assert.ErrorIs(t, err, context.Canceled)
				} else {
					assert.NoError(t, err)
				}
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		f := pl.s.flow(0)
		f.Echo = true
		pl.creditWith(f, 2)
		synctest.Wait()
		assert.True(t, sameBodies([][]byte{{0}, {2}}, pl.received()))
	})
}

func TestReencode_keepsFiltersThatGoAMQPDecodes(t *testing.T) {
	described := func(descriptor, value any) wire.Map {
		return wire.Map{{Key: wire.Symbol("f"), Value: wire.Described{Descriptor: descriptor, Value: value}}}
	}
	many := make(wire.Map, maxPlain+1)
	for i := range many {
		many[i] = described(uint64(1<<40), "v")[0]
	}
	for name, c := range map[string]struct {
		filter wire.Map
		kept   bool
	}{
		"by code":         {described(uint64(0x468C00000004), "a > 1"), true},
		"by name":         {described(wire.Symbol("apache.org:selector-filter:string"), "a > 1"), true},
		"not described":   {wire.Map{{Key: wire.Symbol("f"), Value: "a"}}, false},
		"string for name": {wire.Map{{Key: "f", Value: described(uint64(1), "v")[0].Value}}, false},
		"odd descriptor":  {described("x", "v"), false},
		"odd value":       {described(uint64(1<<40), wire.Decimal32{}), false},
		"too many":        {many, false},
		"none":            {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := reencodeAttach(0, &wire.Attach{Name: "l", Source: &wire.Source{Filter: c.filter}})
			var a wire.Attach
			require.NoError(t, a.Decode(b[wire.FrameHeaderSize:]))
			assert.Equal(t, c.kept, len(a.Source.Filter) > 0)
		})
	}
}

func TestErrors_sayAndWrap(t *testing.T) {
	assert.Equal(t, "message of 11 octets, the peer takes 10", (&SizeError{11, 10}).Error())
	pe := &PeerError{Performative: "end", Err: &wire.Error{Condition: "c", Description: "d"}}
	assert.Equal(t, "peer sent end: c: d", pe.Error())
	require.ErrorIs(t, both(ErrNotSent, pe), pe)
	assert.Equal(t, ErrClosed, both(ErrClosed, nil))
}
