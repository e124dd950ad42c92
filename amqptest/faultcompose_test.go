package amqptest

import (
	"context"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestSequence_oneFaultAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Sequence(RefuseOpen(amqp.ErrCondNotAllowed, ""), RefuseTCP().Times(2), Together(
			RefuseAttach("orders", amqp.ErrCondNotFound, ""), RefuseAttach("other", amqp.ErrCondUnauthorizedAccess, ""),
		)).Times(2)))
		for range 2 {
			c, err := tryConn(t, s, nil)
			require.NoError(t, err)
			<-c.Done()
			assert.Equal(t, amqp.ErrCondNotAllowed, conditionOf(t, c.Err()))
			for range 2 {
				_, err := s.Dial(t.Context())
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
			}
			ses := connect(t, s, nil)
			_, err = ses.NewSender(t.Context(), "other", nil)
			assert.Equal(t, amqp.ErrCondUnauthorizedAccess, conditionOf(t, err))
			_, err = ses.NewSender(t.Context(), "orders", nil)
			assert.Equal(t, amqp.ErrCondNotFound, conditionOf(t, err))
		}
		require.NoError(t, round(t, s))
	})
}

func TestSequence_waitsForWhatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		c, _ := connectBoth(t, s, &amqp.ConnOptions{IdleTimeout: -1})
		start := time.Now()
		require.NoError(t, s.Fault(Sequence(Silence().Delay(time.Minute).For(time.Hour), Close(amqp.ErrCondConnectionForced, ""))))
		<-c.Done()
		assert.Equal(t, time.Hour+time.Minute, time.Since(start))
		assert.Equal(t, amqp.ErrCondConnectionForced, conditionOf(t, c.Err()))
	})
}

func TestHeal_endsASequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		snd := sender(t, connect(t, s, &amqp.ConnOptions{IdleTimeout: -1}), "orders", nil)
		require.NoError(t, s.Fault(Detach("orders", "", "").Delay(time.Minute)))
		synctest.Wait()
		require.NoError(t, s.Fault(Sequence(Silence().For(time.Minute), Close("", "")).Always()))
		synctest.Wait()
		s.Heal()
		<-time.After(time.Hour)
		require.NoError(t, round(t, s))
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		synctest.Wait()
		assert.Len(t, s.conns, 1)
	})
}

func TestFault_chanceIsTheSameUnderASeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(seed uint64) (refused []int) {
			s := newServer(t, nil)
			require.NoError(t, s.Fault(Answer("orders", amqpflow.Released, nil).Chance(0.3, seed).Always()))
			snd := sender(t, connect(t, s, nil), "orders", nil)
			for i := range 200 {
				receipt, err := snd.SendWithReceipt(t.Context(), text("0"), nil)
				require.NoError(t, err)
				state, err := receipt.Wait(t.Context())
				require.NoError(t, err)
				if _, released := state.(*amqp.StateReleased); released {
					refused = append(refused, i)
				}
			}
			return refused
		}
		first := run(1)
		assert.InDelta(t, 60, len(first), 25)
		assert.Equal(t, first, run(1))
		assert.NotEqual(t, first, run(2))
	})
}

func TestFault_chanceWithEachDelivery(t *testing.T) {
	const rounds, p, seed = 100, 0.2, 3
	deliver := map[string]func(*testing.T, *amqp.Session) error{
		"to the server": func(t *testing.T, ses *amqp.Session) error {
			return sender(t, ses, "orders", nil).Send(t.Context(), text("0"), nil)
		},
		"to the client": func(t *testing.T, ses *amqp.Session) error {
			_, err := manual(t, ses, "orders", 1).Receive(t.Context(), nil)
			return err // unsettled, so that it comes again
		},
	}
	for way, deliver := range deliver {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				require.NoError(t, s.Put("orders", text("0")))
				require.NoError(t, s.Fault(Drop().Chance(p, seed).Always()))
				dice := rand.New(rand.NewPCG(seed, 0))
				for i := range rounds {
					c, ses := connectBoth(t, s, nil)
					require.Equal(t, dice.Float64() < p, deliver(t, ses) != nil, "delivery %d", i)
					_ = c.Close()
					synctest.Wait()
				}
			})
		})
	}
}

func TestFault_countsOnEachConnectionByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Drop().AfterFrames(15).Always()))
		for range 3 {
			c, ses := connectBoth(t, s, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
			sender(t, ses, "orders", nil)
			synctest.Wait()
			select {
			case <-c.Done():
				t.Fatal(c.Err())
			default:
			}
			_, err := ses.NewSender(t.Context(), "orders", nil)
			require.Error(t, err)
		}
	})
}

func TestFault_countsTheFramesOfALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Detach("orders", amqp.ErrCondDetachForced, "").AfterFrames(4)))
		ses := connect(t, s, nil)
		snd, other := sender(t, ses, "orders", nil), sender(t, ses, "other", nil)
		for range 10 {
			require.NoError(t, other.Send(t.Context(), text("0"), nil))
		}
		// Our attach, our flow and two transfers make four.
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		_ = snd.Send(t.Context(), text("0"), nil) // go-amqp looks at its answer or at the detach behind it
		assert.Equal(t, amqp.ErrCondDetachForced, conditionOf(t, snd.Send(t.Context(), text("0"), nil)))
	})
}

func TestFault_aimsAtALinkByItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		a, b := sender(t, ses, "orders", &amqp.SenderOptions{Name: "a"}), sender(t, ses, "orders", &amqp.SenderOptions{Name: "b"})
		require.NoError(t, s.Fault(Detach("orders", "", "").OnLink("a")))
		require.NoError(t, s.Fault(Drop().OnConnection(2)))
		synctest.Wait()
		require.Error(t, a.Send(t.Context(), text("0"), nil))
		require.NoError(t, b.Send(t.Context(), text("0"), nil))
		_, err := tryConn(t, s, nil)
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, b.Send(t.Context(), text("0"), nil))
	})
}

func TestFault_thatCanNeverHappenIsAnError(t *testing.T) {
	s := NewServer()
	for _, c := range []struct {
		fault Fault
		want  string
	}{
		{Drop().AfterBytes(-1), `after -1 is below 0`},
		{Drop().Delay(0), `a delay of 0s`},
		{Silence().For(-time.Second), `a duration of -1s`},
		{Drop().For(time.Second), `drop, for 1s: it has no duration`},
		{IgnoreEnd().Delay(time.Second), `it cannot be delayed`},
		{Drop().Chance(0, 1), `a chance of 0 is not in (0, 1]`},
		{Drop().Chance(1.5, 1), `a chance of 1.5`},
		{Drop().AfterFrames(0).Chance(0.5, 1), `a chance needs something to count`},
		{RefuseTCP().AfterFrames(1), `no frame or byte comes before it`},
		{RefuseTCP().OnContainer("x"), `it cannot be aimed at a container-id`},
		{RefuseSASL(1).OnContainer("x"), `it cannot be aimed at a container-id`},
		{RefuseSASL(0), `sasl code 0 refuses nothing`},
		{RefuseSASL(5), `sasl code 5`},
		{RefuseOpen("", "why"), `a description "why" without a condition`},
		{RefuseOpen("", "").OnSession(1), `it cannot be aimed at a session`},
		{RefuseBegin("", "").OnLink("x"), `it cannot be aimed at a link`},
		{IgnoreEnd().OnAddress("x"), `it cannot be aimed at an address`},
		{IgnoreClose().OnSession(0), `it cannot be aimed at a session`},
		{Drop().OnConnection(0), `connection 0: the first one is 1`},
		{Drop().OnContainer(""), `an empty container-id`},
		{Drop().OnLink(""), `an empty link name`},
		{Drop().OnAddress(""), `an empty address`},
		{Drop().OnAddress("queue:"), `queue:`},
		{TakeBack("orders", amqpflow.Accepted), `outcome accepted does not give a message back`},
		{TakeBack("orders", amqpflow.Released).OnAddress("other"), `address "other" beside "orders"`},
		{WriteBytes(nil), `no bytes`},
		{Drip(0, time.Second), `0 bytes every 1s`},
		{Together(), `a composition of nothing`},
		{Sequence(Drop()).After(1), `a composition has only Times and Always`},
		{Sequence(Drop(), RefuseSASL(0)), `part 2, refuse SASL with code 0: sasl code 0`},
		{Sequence(Drop().Always(), Drop()), `part 1, drop, always: is never over, so that part 2 never begins`},
		{Together(Drop().Always()).Times(2), `is never over, so that nothing starts again`},
	} {
		err := s.Fault(c.fault)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "amqptest: fault: "+c.fault.String()+": ")
	}
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Fault(Drop()), ErrClosed)
}

func TestFault_printsItself(t *testing.T) {
	full := &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "full"}
	for want, f := range map[string]Fault{
		`no fault`: {},
		`detach "orders" with amqp:link:detach-forced "maintenance", after 3, 2 times`: Detach("orders", amqp.ErrCondDetachForced, "maintenance").After(3).Times(2),
		`answer "orders" with rejected for amqp:resource-limit-exceeded "full"`:        Answer("orders", amqpflow.Rejected, full),
		`answer "orders" with no state, 1h0m0s later`:                                  Answer("orders", amqpflow.OutcomeNone, nil).Delay(time.Hour),
		`refuse SASL with code 1, always`:                                              RefuseSASL(wire.SASLAuth).Always(),
		`silence, after 7 frames, for 1m0s, with chance 0.5 (seed 9), on container "a"`: Silence().AfterFrames(7).For(time.Minute).
			Chance(0.5, 9).OnContainer("a"),
		`drip 7 bytes every 1s, after 9 bytes, on connection 1, on session 2, on link "x", on address "a"`: Drip(7, time.Second).
			AfterBytes(9).OnConnection(1).OnSession(2).OnLink("x").OnAddress("a"),
		`sequence (write 2 bytes; together (drop; refuse TCP, 3 times)), always`: Sequence(WriteBytes([]byte("ab")),
			Together(Drop(), RefuseTCP().Times(3))).Always(),
	} {
		assert.Equal(t, want, f.String())
	}
}

func TestFault_leavesNoTimerBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		snd := sender(t, connect(t, s, &amqp.ConnOptions{IdleTimeout: -1}), "orders", nil)
		require.NoError(t, s.Fault(Answer("orders", amqpflow.Accepted, nil).Delay(time.Hour)))
		require.NoError(t, s.Fault(Silence().After(1).For(24*time.Hour)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, snd.Send(ctx, text("0"), nil))
		start := time.Now()
		require.NoError(t, s.Close())
		assert.LessOrEqual(t, time.Since(start), linger)
		assert.Empty(t, s.timers)
	})
}

func TestFault_countsOnWhenItHasHappenedToAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Drop().AfterFrames(20).Always()))
		a := sender(t, connect(t, s, nil), "orders", nil) // nine frames: no SASL
		b := sender(t, connect(t, s, nil), "orders", nil)
		for range 4 {
			require.NoError(t, b.Send(t.Context(), text("0"), nil)) // two each
		}
		for range 5 {
			require.NoError(t, a.Send(t.Context(), text("0"), nil))
		}
		require.Error(t, a.Send(t.Context(), text("0"), nil))
		require.NoError(t, b.Send(t.Context(), text("0"), nil))
		require.Error(t, b.Send(t.Context(), text("0"), nil))
	})
}

func TestFault_ofAConnectionThatHasGoneIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, round(t, s))
		connect(t, s, nil)
		synctest.Wait()
		require.ErrorContains(t, s.Fault(Drop().OnConnection(1)), "connection 1 has gone by")
		require.ErrorContains(t, s.Fault(Sequence(Drop(), RefuseTCP().OnConnection(2))), "connection 2 has gone by")
		require.NoError(t, s.Fault(Drop().OnConnection(2)))
		require.NoError(t, s.Fault(RefuseTCP().OnConnection(3)))
		_, err := s.Dial(t.Context())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

func TestTogether_isOverWhenAllOfItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		refuse := func(addr amqpflow.Address) Fault { return RefuseAttach(addr, amqp.ErrCondNotFound, "") }
		require.NoError(t, s.Fault(Sequence(Together(refuse("a"), refuse("b")), refuse("c"))))
		ses := connect(t, s, nil)
		for _, step := range []struct {
			addr    string
			refused bool
		}{{"a", true}, {"c", false}, {"b", true}, {"c", true}, {"c", false}} {
			_, err := ses.NewSender(t.Context(), step.addr, nil)
			assert.Equal(t, step.refused, err != nil, step.addr)
		}
	})
}
