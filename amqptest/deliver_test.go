package amqptest

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestServer_passesMessagesFromSenderToReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd := sender(t, ses, "orders", &amqp.SenderOptions{TargetCapabilities: []string{"queue"}})
		rcv, err := connect(t, s, nil).NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Credit: 10})
		require.NoError(t, err)
		for i := range 1000 {
			require.NoError(t, snd.Send(t.Context(), text(strconv.Itoa(i)), nil))
		}
		for i := range 1000 {
			m := receive(t, rcv)
			require.Equal(t, strconv.Itoa(i), string(m.GetData()))
			require.NoError(t, rcv.AcceptMessage(t.Context(), m))
		}
		require.NoError(t, s.Idle(t.Context()))
		require.Len(t, s.Settlements("orders"), 1000)
	})
}

func TestServer_splitsAndJoinsLargeMessages(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // 128 KiB
	for name, o := range map[string]*Options{
		"default":                 nil,
		"small frames":            {MaxFrameSize: 512},
		"small frames and window": {MaxFrameSize: 512, Window: 1},
	} {
		for _, frame := range []uint32{512, 513, 65536} {
			t.Run(name+", client "+strconv.Itoa(int(frame)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, o)
					ses := connect(t, s, &amqp.ConnOptions{MaxFrameSize: frame})
					snd := sender(t, ses, "orders", nil)
					m := amqp.NewMessage(big)
					require.NoError(t, snd.Send(t.Context(), m, nil))
					require.NoError(t, snd.Send(t.Context(), text("small"), nil))
					rcv := manual(t, ses, "orders", 2)
					got := receive(t, rcv)
					require.True(t, bytes.Equal(big, got.GetData()))
					require.NoError(t, rcv.AcceptMessage(t.Context(), got))
					got = receive(t, rcv)
					require.Equal(t, "small", string(got.GetData()))
					require.NoError(t, rcv.AcceptMessage(t.Context(), got))
				})
			})
		}
	}
}

func TestServer_splitsExactlyAtTheClientsFrameSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for size := 300; size < 1200; size++ {
			require.NoError(t, s.Put("orders", amqp.NewMessage(make([]byte, size))))
		}
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		f := linkFlow(900)
		f.IncomingWindow = 1 << 20
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512},
			&wire.Begin{}, attachReceiver(0), f)
		for size := 300; size < 1200; size++ {
			var payload []byte
			for more := true; more; {
				tr := r.awaitTransfer()
				payload = append(payload, tr.Payload...)
				more = tr.More
			}
			var sections wire.Sections
			require.NoError(t, sections.Parse(payload))
			require.Len(t, sections.Data, size)
		}
		assert.EqualValues(t, 512, r.largest)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_keepsTheClientsSessionWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(5)...))
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		grant := func(next, window uint32) *wire.Flow {
			f := linkFlow(0)
			f.NextIncomingID, f.IncomingWindow, f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(next), window, wire.OptUint32{}, wire.OptUint32{}, wire.OptUint32{}
			f.Echo = true
			return f
		}
		f := linkFlow(5)
		f.IncomingWindow, f.Echo = 2, true
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 65536}, &wire.Begin{IncomingWindow: 2}, attachReceiver(0), f)
		synctest.Wait()
		assert.Len(t, s.Messages("orders"), 3, "two are all that the window allows")
		r.send(grant(1, 2)) // the second one is still under way
		synctest.Wait()
		assert.Len(t, s.Messages("orders"), 2)
		r.send(grant(3, 0))
		synctest.Wait()
		assert.Len(t, s.Messages("orders"), 2)
		r.send(grant(3, 1<<32-1))
		synctest.Wait()
		assert.Empty(t, s.Messages("orders"))
		for id := range uint32(5) {
			tr := r.awaitTransfer()
			assert.Equal(t, wire.Some(id), tr.DeliveryID)
		}
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_sendsALargeMessageThroughAWindowOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		body := bytes.Repeat([]byte{'x'}, 3000)
		require.NoError(t, s.Put("orders", amqp.NewMessage(body), text("next")))
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		f := linkFlow(5)
		f.IncomingWindow = 1
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512}, &wire.Begin{IncomingWindow: 1}, attachReceiver(0), f)
		frames, deliveries := uint32(0), 0
		for deliveries < 2 {
			tr := r.awaitTransfer()
			frames++
			if !tr.More {
				deliveries++
			}
			synctest.Wait()
			require.Empty(t, r.buf, "a frame beyond the window")
			r.send(&wire.Flow{NextIncomingID: wire.Some(frames), IncomingWindow: 1})
		}
		assert.Greater(t, frames, uint32(6))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_drainsWhatIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		rcv := manual(t, ses, "orders", 5)
		require.NoError(t, s.Put("orders", numbered(2)...))
		synctest.Wait() // go-amqp forgets credit that it has not written yet when it drains
		require.NoError(t, rcv.DrainCredit(t.Context(), nil))
		for range 2 {
			require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
		}
		require.NoError(t, s.Put("orders", text("later")))
		synctest.Wait()
		assert.Equal(t, []string{"later"}, bodies(t, s), "no credit is left")
		require.NoError(t, rcv.IssueCredit(1))
		require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
	})
}

func TestServer_answersADrainWithTheCountMovedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(2)...))
		r := dialRaw(t, s).opened()
		f := linkFlow(10)
		f.Drain = true
		r.send(attachReceiver(0), f)
		r.awaitTransfer()
		r.awaitTransfer()
		answer := r.awaitFlow()
		assert.Equal(t, wire.Some(10), answer.DeliveryCount)
		assert.Equal(t, wire.Some(0), answer.LinkCredit)
		assert.True(t, answer.Drain)

		f = linkFlow(0) // nothing is granted: answered all the same
		f.NextIncomingID, f.DeliveryCount, f.Drain = wire.Some(2), wire.Some(10), true
		r.send(f)
		answer = r.awaitFlow()
		assert.Equal(t, wire.Some(10), answer.DeliveryCount)

		f.LinkCredit, f.Drain = wire.Some(1), false
		r.send(f)
		require.NoError(t, s.Put("orders", text("later")))
		tr := r.awaitTransfer()
		assert.Equal(t, wire.Some(2), tr.DeliveryID)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_answersAnEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{Window: 9})
		r := dialRaw(t, s).opened()
		r.send(&wire.Flow{NextIncomingID: wire.Some(0), IncomingWindow: 5, Echo: true})
		f := r.awaitFlow()
		assert.False(t, f.Handle.Set)
		assert.EqualValues(t, 9, f.IncomingWindow)
		echo := linkFlow(3)
		echo.Echo = true
		r.send(attachReceiver(0), echo)
		f = r.awaitFlow()
		assert.Equal(t, wire.Some(3), f.LinkCredit)
		assert.Equal(t, wire.Some(0), f.Available)
		out := attachSender(1)
		out.InitialDeliveryCount = wire.Some(1<<32 - 1)
		r.send(out)
		f = r.awaitFlow()
		r.send(&wire.Flow{NextIncomingID: wire.Some(0), Handle: wire.Some(1), DeliveryCount: wire.Some(1<<32 - 1), Echo: true})
		assert.Equal(t, f, r.awaitFlow())
		assert.Equal(t, wire.Some(linkCredit), f.LinkCredit)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_dropsAnAbortedDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		tr := first(0)
		tr.More = true
		r.transfer(tr, hello)
		r.transfer(wire.Transfer{Aborted: true}, nil)
		r.transfer(first(1), hello)
		d := r.awaitDisposition()
		assert.Equal(t, wire.Disposition{Role: wire.RoleReceiver, First: 1, Last: 1, Settled: true, State: wire.State{Kind: wire.StateAccepted}}, d)
		assert.Equal(t, []string{"hello"}, bodies(t, s))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_interleavesDeliveriesOfTwoLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		r.send(attachSender(1))
		r.awaitFlow()
		a, b := first(4), first(5)
		a.More, b.More, b.Handle = true, true, 1
		r.transfer(a, hello[:4])
		r.transfer(b, hello[:3])
		r.transfer(wire.Transfer{Handle: 0}, hello[4:])
		r.transfer(wire.Transfer{Handle: 1, DeliveryID: wire.Some(5)}, hello[3:])
		assert.EqualValues(t, 4, r.awaitDisposition().First)
		assert.EqualValues(t, 5, r.awaitDisposition().First)
		assert.Equal(t, []string{"hello", "hello"}, bodies(t, s))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_answersManyDeliveriesInOneRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		var all []byte
		for id := range uint32(100) {
			tr := first(id)
			all = append(all, frameOf(wire.TypeAMQP, 0, &tr, hello)...)
		}
		r.bytes(all)
		d := r.awaitDisposition()
		assert.EqualValues(t, 0, d.First)
		assert.EqualValues(t, 99, d.Last)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_sendsSettledWhereTheReceiverAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		rcv, err := connect(t, s, nil).NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{
			Credit: 10, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		})
		require.NoError(t, err)
		for i := range 3 {
			assert.Equal(t, strconv.Itoa(i), string(receive(t, rcv).GetData()))
		}
		require.NoError(t, rcv.Close(t.Context()))
		assert.Empty(t, s.Messages("orders"), "what was sent settled does not come back")
		assert.Empty(t, s.Settlements("orders"))
		require.NoError(t, s.Idle(t.Context()))
	})
}

func TestServer_takesSettledMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		snd := sender(t, connect(t, s, nil), "orders", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
		for _, m := range numbered(3) {
			require.NoError(t, snd.Send(t.Context(), m, nil))
		}
		synctest.Wait()
		assert.Equal(t, []string{"0", "1", "2"}, bodies(t, s))
	})
}

func TestServer_settlesInTheSecondMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd := sender(t, ses, "orders", &amqp.SenderOptions{RequestedReceiverSettleMode: amqp.ReceiverSettleModeSecond.Ptr()})
		require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		require.NoError(t, snd.Send(t.Context(), text("1"), nil))
		rcv, err := ses.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
		require.NoError(t, err)
		require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)), "returns once the server has settled")
		require.NoError(t, rcv.RejectMessage(t.Context(), receive(t, rcv), nil))
		require.NoError(t, s.Idle(t.Context()))
		assert.Len(t, s.Settlements("orders"), 2)
		assert.Len(t, s.DeadLetters("orders"), 1)
	})
}

func TestServer_passesAnotherMessageFormatAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		tr := first(0)
		tr.MessageFormat = wire.Some(7)
		r.transfer(tr, []byte("no AMQP message"))
		r.awaitDisposition()
		ms := s.Messages("orders")
		require.Len(t, ms, 1)
		assert.EqualValues(t, 7, ms[0].Format)
		assert.Equal(t, "no AMQP message", string(ms[0].GetData()))
		in := attachReceiver(1)
		f := linkFlow(1)
		f.Handle, f.NextOutgoingID = wire.Some(1), 1
		r.send(in, f)
		got := r.awaitTransfer()
		assert.Equal(t, wire.Some(7), got.MessageFormat)
		assert.Equal(t, "no AMQP message", string(got.Payload))
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_redeliversWhatIsSettledWithoutAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		r := dialRaw(t, s).opened().receiving(1)
		r.awaitTransfer()
		r.send(&wire.Disposition{Role: wire.RoleReceiver, State: wire.State{Kind: wire.StateReceived}},
			&wire.Disposition{Role: wire.RoleReceiver, Settled: true})
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
		assert.Equal(t, []Settlement{{MessageID: "0"}}, s.Settlements("orders"))
		assert.Equal(t, []string{"0"}, bodies(t, s))
	})
}

func TestServer_holdsBackDeliveriesForAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for range 100 {
			require.NoError(t, s.Put("orders", amqp.NewMessage(make([]byte, 60_000))))
		}
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		f := linkFlow(100)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 1 << 20}, &wire.Begin{IncomingWindow: 1000}, attachReceiver(0), f)
		synctest.Wait()
		assert.Greater(t, len(s.Messages("orders")), 85, "about outRoom is given out")
		for range 100 {
			require.Greater(t, len(r.awaitTransfer().Payload), 60_000)
		}
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestLink_endsWhereAMessageIsTooLargeForTheClient(t *testing.T) {
	for _, mode := range []wire.Symbol{"", distributionCopy} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil)
			require.NoError(t, s.Put("orders", text("0"), text(strings.Repeat("x", 2000)), text("2")))
			r := dialRaw(t, s).opened()
			a := attachReceiver(0)
			a.MaxMessageSize, a.Source.DistributionMode = 1000, mode
			other := attachReceiver(1)
			credit := linkFlow(5)
			r.send(a, credit)
			r.awaitTransfer()
			d := r.awaitDetach()
			assert.True(t, d.Closed)
			require.NotNil(t, d.Error)
			assert.EqualValues(t, amqp.ErrCondMessageSizeExceeded, d.Error.Condition)
			assert.Len(t, s.Messages("orders"), 3, "all are there")
			credit.NextIncomingID, credit.Handle = wire.Some(1), wire.Some(1)
			r.send(other, credit)
			for range 3 {
				r.awaitTransfer()
			}
			bye(r)
		})
	}
}

func TestLink_isGivenNothingNewWhileItsUnsettledMapIsIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		r := dialRaw(t, s).opened()
		a := attachReceiver(0)
		a.Unsettled, a.IncompleteUnsettled = wire.Map{{Key: []byte("old")}}, true
		r.send(a, linkFlow(5))
		synctest.Wait()
		assert.Len(t, s.Messages("orders"), 1)
		bye(r)
	})
}

func TestServer_settlesAfterAConsumerInOneRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(5)...))
		r := dialRaw(t, s).opened().receiving(5)
		for range 5 {
			r.awaitTransfer()
		}
		released := wire.State{Kind: wire.StateReleased}
		r.send(
			&wire.Disposition{Role: wire.RoleReceiver, First: 2, Last: 2, Settled: true, State: released},
			&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 1, State: wire.State{Kind: wire.StateAccepted}},
			&wire.Disposition{Role: wire.RoleReceiver, First: 3, Last: 4, State: released},
		)
		for _, want := range []wire.Disposition{
			{First: 0, Last: 1, Settled: true, State: wire.State{Kind: wire.StateAccepted}},
			{First: 3, Last: 4, Settled: true, State: released},
		} {
			assert.Equal(t, want, r.awaitDisposition())
		}
		bye(r)
	})
}
