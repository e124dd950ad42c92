package dataplane

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestLink_receivesWithinTheWindowAndSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		pl.window = 10
		require.NoError(t, l.Grant(10, false))
		for i := range 100 {
			r.p.await("credit", func() bool { return ahead(pl.creditEnd, pl.count) > 0 })
			id := pl.deliver(0, false, []byte{byte(i)})
			d := take(t, l, 1)[0]
			assert.Equal(t, id, d.ID)
			assert.Equal(t, []byte{byte(i)}, d.Payload)
			assert.Equal(t, []byte{0, 0, 0, byte(i)}, d.Tag)
			require.NoError(t, l.Settle(d.ID, accepted))
			require.NoError(t, l.Grant(10, false))
		}
		synctest.Wait()
		r.p.await("settlement", func() bool { return len(pl.s.outstanding) < 5 })
		credit, outstanding := l.Credit()
		assert.Zero(t, outstanding)
		assert.GreaterOrEqual(t, credit, 5)
		flows := 0
		for _, line := range r.p.seen() {
			if strings.HasPrefix(line, "flow") {
				flows++
			}
		}
		assert.Equal(t, 1+100/5, flows, "a flow is due at half a window")
	})
}

func TestLink_putsOneTokenForManyDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(100, true))
		synctest.Wait()
		var burst []byte
		for id := range uint32(50) {
			tr := wire.Transfer{Handle: pl.mine, DeliveryID: wire.Some(id), DeliveryTag: []byte{byte(id)}}
			start := len(burst)
			burst = tr.Append(wire.BeginFrame(burst, wire.TypeAMQP, pl.s.mine))
			wire.EndFrame(burst, start)
		}
		r.p.write(burst)
		synctest.Wait()
		<-l.Ready()
		assert.Empty(t, l.Ready(), "one read of the socket, one token")
		assert.Len(t, take(t, l, 50), 50)
	})
}

func TestLink_assemblesDeliveriesOfManyFrames(t *testing.T) {
	r := newRig(t, rigOptions{})
	s, as := r.session()
	l, _, pl := r.receiver(s, as, "in", LinkOptions{MaxMessage: 10_000})
	require.NoError(t, l.Grant(10, true))
	r.p.await("credit", func() bool { return ahead(pl.creditEnd, pl.count) == 10 })
	body := bytes.Repeat([]byte("0123456789"), 1000)
	pl.deliver(300, false, body)
	pl.deliver(300, true, append(body, 1))
	pl.deliver(0, true, []byte("small"))
	ds := take(t, l, 3)
	assert.Equal(t, body, ds[0].Payload)
	assert.Equal(t, []byte{0, 0, 0, 0}, ds[0].Tag)
	assert.False(t, ds[0].Settled)
	assert.True(t, ds[1].TooLarge)
	assert.Nil(t, ds[1].Payload)
	assert.EqualValues(t, 10_001, ds[1].Size)
	assert.True(t, ds[2].Settled)

	credit, outstanding := l.Credit()
	assert.Equal(t, 7, credit)
	assert.Equal(t, 3, outstanding)
	for _, d := range ds {
		require.NoError(t, l.Settle(d.ID, accepted))
	}
	_, outstanding = l.Credit()
	assert.Zero(t, outstanding)
	r.p.await("settlement", func() bool { return len(pl.s.outstanding) == 0 })
}

func TestLink_takesFramesLargerThanTheReadBuffer(t *testing.T) {
	r := newRig(t, rigOptions{})
	s, as := r.session()
	l, _, pl := r.receiver(s, as, "in", LinkOptions{})
	require.NoError(t, l.Grant(30, true))
	for i := range 30 {
		body := bytes.Repeat([]byte{byte(i)}, []int{10, defaultMaxFrame - 100, 70_000}[i%3])
		pl.deliver(0, true, body)
		d := take(t, l, 1)[0]
		require.True(t, bytes.Equal(body, d.Payload))
	}
}

func TestLink_checksLaterFramesAgainstTheFirst(t *testing.T) {
	first := wire.Transfer{DeliveryID: wire.Some(7), DeliveryTag: []byte("tag"), MessageFormat: wire.Some(3), More: true}
	for name, next := range map[string]wire.Transfer{
		"delivery-id":    {DeliveryID: wire.Some(8)},
		"delivery-tag":   {DeliveryTag: []byte("gat")},
		"message-format": {MessageFormat: wire.Some(4)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			s, as := r.session()
			l, _, pl := r.receiver(s, as, "in", LinkOptions{})
			require.NoError(t, l.Grant(10, true))
			pl.send(&first, []byte("a"))
			pl.send(&next, []byte("b"))
			<-r.c.Done()
			assert.ErrorContains(t, r.c.Err(), name[:8])
		})
	}
	t.Run("same", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(10, true))
		pl.send(&first, []byte("a"))
		last := first
		last.More, last.Settled = false, true
		pl.send(&last, []byte("b"))
		d := take(t, l, 1)[0]
		assert.Equal(t, "ab", string(d.Payload))
		assert.EqualValues(t, 3, d.Format)
		assert.True(t, d.Settled, "settled if any frame says so")
	})
}

func TestLink_countsAbortedDeliveriesAgainstTheCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(2, true))
		pl.send(&wire.Transfer{DeliveryID: wire.Some(0), DeliveryTag: []byte("a"), More: true}, []byte("lost"))
		pl.send(&wire.Transfer{Aborted: true}, nil)
		<-l.Noticed()
		assert.Zero(t, l.Deliveries(make([]Delivery, 1)))
		credit, outstanding := l.Credit()
		assert.Equal(t, 1, credit)
		assert.Zero(t, outstanding)
		r.p.locked(func() { pl.count++; s := pl.s; s.nextMine++ })
		pl.deliver(0, true, []byte("kept"))
		assert.Equal(t, "kept", string(take(t, l, 1)[0].Payload))
	})
}

func TestLink_endsWhenThePeerSendsBeyondItsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, rcv, pl := r.receiver(s, as, "in", LinkOptions{})
		other, _, _ := r.receiver(s, as, "other", LinkOptions{})
		require.NoError(t, l.Grant(3, true))
		for range 5 {
			pl.deliver(0, false, []byte("x"))
		}
		<-l.Done()
		require.ErrorIs(t, l.Err(), ErrTransferLimit)
		assert.Equal(t, 3, l.Deliveries(make([]Delivery, 10)), "nothing beyond the credit is stored")
		require.ErrorIs(t, l.Settle(0, accepted), ErrLinkLost)
		require.ErrorIs(t, l.Grant(3, true), ErrTransferLimit)
		require.NoError(t, rcv.Close(t.Context()))
		synctest.Wait()
		r.p.locked(func() {
			d, ok := r.p.frames[len(r.p.frames)-1].(*wire.Detach)
			require.True(t, ok)
			assert.Equal(t, wire.Symbol("amqp:link:transfer-limit-exceeded"), d.Error.Condition)
		})
		require.NoError(t, other.Grant(1, true), "the session and its other links live on")
	})
}

func TestLink_reportsWhatThePeerTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		l2, _, pl2 := r.receiver(s, as, "in2", LinkOptions{Returned: accepted})
		require.NoError(t, l.Grant(10, true))
		require.NoError(t, l2.Grant(10, true))
		for range 3 {
			pl.deliver(0, false, nil)
			pl2.deliver(0, false, nil)
		}
		take(t, l, 3)
		take(t, l2, 3)
		// Two links and a gap: 1 is settled already, 6 was never sent.
		require.NoError(t, l2.Settle(1, accepted))
		for _, settled := range []bool{false, true} { // said twice, told once; RabbitMQ leaves it to us to settle
			r.p.send(pl.s.mine, &wire.Disposition{
				Role: wire.RoleSender, First: 1, Last: 6, Settled: settled, State: wire.State{Kind: wire.StateReleased},
			})
		}
		<-l.Noticed()
		<-l2.Noticed()
		synctest.Wait()
		ids := make([]uint32, 10)
		assert.Equal(t, []uint32{2, 4}, ids[:l.TakenBack(ids)])
		assert.Equal(t, []uint32{3, 5}, ids[:l2.TakenBack(ids)])
		_, outstanding := l.Credit()
		assert.Equal(t, 3, outstanding, "they occupy the window until Settle")
		assert.True(t, l.IsTakenBack(2))
		assert.False(t, l.IsTakenBack(0))
		assert.False(t, l.IsTakenBack(3), "another link's")
		require.Equal(t, map[uint32]error{2: ErrTakenBack, 4: ErrTakenBack}, l.SettleAll([]uint32{0, 2, 4}, accepted))
		_, outstanding = l.Credit()
		assert.Zero(t, outstanding)
		require.ErrorIs(t, l.Settle(2, accepted), ErrLinkLost, "settled before")
		require.ErrorIs(t, l.Settle(3, accepted), ErrLinkLost, "another link's")
		require.ErrorIs(t, l2.Settle(3, accepted), ErrTakenBack)
		<-time.After(2 * settleDelay)
		r.p.locked(func() {
			answers := map[uint32]wire.StateKind{}
			for id, state := range pl.s.settled {
				answers[id] = state.Kind
			}
			for id, state := range pl2.s.settled {
				answers[id] = state.Kind
			}
			assert.Equal(t, map[uint32]wire.StateKind{
				0: wire.StateAccepted, 1: wire.StateAccepted, 2: wire.StateReleased, 3: wire.StateAccepted, 4: wire.StateReleased,
			}, answers, "the second link says what answers")
		})
	})
}

// Our ATTACH calls nothing unsettled, so whatever is resumed is not known here.
func TestLink_ignoresResumedDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		s, as := r.session()
		l, _, pl := r.receiver(s, as, "in", LinkOptions{})
		require.NoError(t, l.Grant(10, true))
		synctest.Wait()
		pl.send(&wire.Transfer{DeliveryID: wire.Some(0), DeliveryTag: []byte("a"), Resume: true}, []byte("old"))
		pl.send(&wire.Transfer{DeliveryID: wire.Some(1), DeliveryTag: []byte("b"), Resume: true, More: true}, []byte("older"))
		pl.send(&wire.Transfer{DeliveryTag: []byte("b")}, []byte("oldest"))
		r.p.locked(func() { pl.s.nextMine, pl.count = 2, 2 })
		pl.deliver(0, false, []byte("new"))
		d := take(t, l, 1)[0]
		assert.Equal(t, "new", string(d.Payload))
		credit, outstanding := l.Credit()
		assert.Equal(t, []int{7, 1}, []int{credit, outstanding})
		require.NoError(t, l.Settle(d.ID, accepted))
	})
}
