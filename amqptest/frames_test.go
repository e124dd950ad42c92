package amqptest

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// The exchange that doc.go shows.
func TestFrames_ofOneExchange(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		c, err := tryConn(t, s, &amqp.ConnOptions{ContainerID: "shop", SASLType: amqp.SASLTypePlain("user", "secret")})
		require.NoError(t, err)
		ses, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		rcv, err := ses.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Name: "in", Credit: -1})
		require.NoError(t, err)
		require.NoError(t, rcv.IssueCredit(1))
		m := receive(t, rcv)
		<-time.After(time.Second)
		require.NoError(t, rcv.RejectMessage(t.Context(), m, &amqp.Error{Condition: amqp.ErrCondInternalError, Description: "no eggs"}))
		require.NoError(t, rcv.Close(t.Context()))
		require.NoError(t, c.Close())
		synctest.Wait()
		frames := s.Frames()
		for _, f := range frames {
			assert.True(t, strings.Contains(string(source), "\n//\t"+f.String()+"\n"), f.String()) //nolint:testifylint // all of doc.go is no message
		}
		require.NotEmpty(t, frames)
		assert.Equal(t, len(frames), strings.Count(string(source), "\n//\t00:00:0"), "and no line more")
	})
}

func TestFrames_neverShowPasswordsAndBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := NewServer(&Options{
			Users: map[string]string{"user": "hunter2"},
			Trace: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		c, err := tryConn(t, s, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("user", "hunter2")})
		require.NoError(t, err)
		ses, err := c.NewSession(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, sender(t, ses, "orders", nil).Send(t.Context(), text("classified"), nil))
		r := dialRaw(t, s)
		r.header(wire.ProtoSASL)
		r.bytes(frameOf(wire.TypeSASL, 0, &wire.SASLResponse{Response: []byte("hunter2")}, nil))
		synctest.Wait()
		shown := fmt.Sprintln(s.Frames()) + log.String()
		for _, secret := range []string{"hunter2", "68756e74657232", "classified", "636c6173736966696564"} {
			assert.NotContains(t, shown, secret)
		}
		assert.Contains(t, shown, "sasl-init mechanism=PLAIN initial-response=(13 bytes)")
		assert.Contains(t, shown, "sasl-response response=(7 bytes)")
		assert.Contains(t, shown, `"msg":"transfer","connection":1,`)
		require.Error(t, s.Close(), "the response was not due")
	})
}

func TestFrames_keepTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		snd := sender(t, connect(t, s, nil), "orders", nil)
		for range 700 {
			require.NoError(t, snd.Send(t.Context(), text("0"), nil))
		}
		frames := s.Frames()
		require.Len(t, frames, tracedFrames)
		last := frames[len(frames)-1]
		assert.Equal(t, "disposition", last.Name)
		assert.Contains(t, last.String(), "first=699")
		assert.True(t, last.Sent)
		assert.Equal(t, "transfer", frames[len(frames)-2].Name)
	})
}

func TestFrames_ofEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Fault(Sequence(
			WriteBytes([]byte("\x00\x00\x00\x08\x02\x00\x00\x00")).AfterFrames(6),
			Answer("orders", amqpflow.Rejected, &amqp.Error{Condition: amqp.ErrCondNotAllowed, Info: map[string]any{"a": []any{1, "b c"}}}),
		)))
		r := dialRaw(t, s).opened()
		r.bytes([]byte("\x00\x00\x00\x08\x02\x00\x00\x00"))
		a := attachSender(0)
		a.Unsettled = wire.Map{{Key: []byte{1, 2}, Value: nil}}
		a.Target.Capabilities = []wire.Symbol{"queue"}
		a.Target.ExpiryPolicy = wire.ExpireSessionEnd
		a.Properties = wire.Map{{Key: wire.Symbol("x"), Value: wire.UUID{15: 1}}, {Key: wire.Symbol("y"), Value: wire.Described{Descriptor: wire.Symbol("d"), Value: ""}}}
		r.send(a)
		r.awaitFlow()
		big := first(0)
		big.State = wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "x", Description: strings.Repeat("long", 100)}}
		r.transfer(big, hello)
		synctest.Wait()
		var shown []string
		for _, f := range s.Frames()[5:] {
			shown = append(shown, f.String()[len("00:00:00.000000 #1 ch 0 "):])
		}
		assert.Equal(t, []string{
			`server begin remote-channel=0 next-outgoing-id=0 incoming-window=2048 outgoing-window=2147483647`,
			`server bytes`,
			`client heartbeat`,
			`client attach name=out0 handle=0 role=sender source={} target={address=orders expiry-policy=session-end capabilities=[queue]} ` +
				`unsettled={0102=null} initial-delivery-count=0 properties={x=00000000000000000000000000000001 y=d:""}`,
		}, shown[:4])
		assert.Equal(t, `client transfer not-shown=463`, shown[len(shown)-2])
		assert.Equal(t, `server disposition role=receiver first=0 settled=true state=rejected{error={condition=amqp:not-allowed info={a=[1 "b c"]}}}`,
			shown[len(shown)-1])
	})
}

func TestCheck_showsTheFramesOfAFailedTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		tb := &recorder{}
		Check(tb, s)
		Check(tb, s)
		require.Len(t, tb.cleanups, 1)
		require.NoError(t, round(t, s))
		require.NoError(t, round(t, s))
		synctest.Wait()
		tb.cleanups[0]()
		assert.Empty(t, tb.logs)
		tb.Error(nil)
		tb.cleanups[0]()
		require.Len(t, tb.logs, 50)
		assert.Contains(t, tb.logs[49], "#2 ch 0 server close")
		require.NoError(t, s.Close())
	})
}

func TestFrames_costLittleWhileNobodyLooks(t *testing.T) {
	s := NewServer()
	nc, _ := net.Pipe()
	c := newConn(s, nc)
	frame := frameOf(wire.TypeAMQP, 0, &wire.Transfer{DeliveryTag: []byte{1}}, make([]byte, 512))
	for range tracedFrames {
		c.passed(true, false, frame)
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.passed(true, false, frame) }))
}

func BenchmarkFrames_noting(b *testing.B) {
	s := NewServer()
	nc, _ := net.Pipe()
	c := newConn(s, nc)
	frame := frameOf(wire.TypeAMQP, 0, &wire.Transfer{DeliveryTag: []byte{1}}, make([]byte, 512))
	for b.Loop() {
		c.passed(true, false, frame)
	}
}
