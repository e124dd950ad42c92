package amqpflow_test

import (
	"bytes"
	"context"
	"fmt"
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

func TestSubscribeReply_oneWorkerSendsOneAtATimeMoreDoNotWait(t *testing.T) {
	for _, workers := range []int{1, 5} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, _ := serveReplies(t, echo, &amqpflow.SubscribeOptions{ReplyTo: "replies", Workers: workers})
				transfers := make(chan frame, 20)
				p.on(wire.CodeTransfer, func(f frame) bool { transfers <- f; return true })
				for range 10 {
					p.deliver("orders", data("x"))
				}
				for range 10 / workers {
					quiet()
					require.Len(t, transfers, workers)
					for range workers {
						f := <-transfers
						p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateAccepted})
					}
				}
				quiet()
				assert.Len(t, p.outcomes(), 10)
				shutdown(t, b)
			})
		})
	}
}

func TestSubscribeReply_encodesAsPublishDoes(t *testing.T) {
	type answer struct {
		A int `json:"a"`
	}
	for name, tc := range map[string]struct{ value, contentType, body any }{
		"struct": {answer{1}, "application/json", `{"a":1}`},
		"bytes":  {[]byte("b"), "application/octet-stream", "b"},
		"empty":  {[]byte(nil), "application/octet-stream", ""},
		"amqp":   {&amqp.Message{Data: [][]byte{[]byte("raw")}}, "", "raw"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, _ := serveReplies(t, func(context.Context, *amqpflow.Message[string]) (any, error) { return tc.value, nil },
					&amqpflow.SubscribeOptions{ReplyTo: "replies"})
				p.deliver("orders", asked("x", wire.Properties{MessageID: "m"}))
				m := replyIn(t, p.awaitCode(wire.CodeTransfer))
				assert.Equal(t, tc.body, string(m.GetData()))
				assert.Equal(t, "m", m.Properties.CorrelationID)
				if tc.contentType != "" {
					assert.Equal(t, tc.contentType, *m.Properties.ContentType)
				}
				shutdown(t, b)
			})
		})
	}
}

func TestSubscribeReply_givenUpReplySharesNoBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 20_000
		p := newPeer(t)
		p.open.MaxFrameSize = 1024
		begun := 0
		p.on(wire.CodeBegin, func(f frame) bool { // four frames a session
			begun++
			p.send(f.channel, &wire.Begin{
				RemoteChannel: wire.Some(uint32(f.channel)), IncomingWindow: 4, OutgoingWindow: 1 << 20, HandleMax: 255,
			})
			return true
		})
		p.credit = 0 // the grant below has the window that the test wants
		b := amqpflow.New("amqp://localhost")
		n := 0
		amqpflow.SubscribeReply(b, "orders", func(context.Context, *amqpflow.Message[string]) ([]byte, error) {
			n++
			return bytes.Repeat([]byte{byte('a' + n - 1)}, size), nil
		}, &amqpflow.SubscribeOptions{ReplyTo: "replies", HandlerTimeout: time.Second})
		p.connect(b)
		var bodies [][]byte
		transfers := make(chan struct{}, 1000)
		var message []byte
		p.on(wire.CodeTransfer, func(f frame) bool {
			tr := f.perf.(*wire.Transfer)
			if message = append(message, tr.Payload...); !tr.More {
				bodies = append(bodies, message)
				message = nil
			}
			transfers <- struct{}{}
			return true
		})
		p.deliver("orders", data("1"))
		synctest.Wait()
		l := p.link("replies", wire.RoleSender)
		window := func(frames, credit uint32) {
			p.mu.Lock()
			s := p.sessions[l.channel]
			next, incoming := s.nextID, s.incoming
			p.mu.Unlock()
			p.send(l.channel, &wire.Flow{
				NextIncomingID: wire.Some(incoming), IncomingWindow: frames, NextOutgoingID: next, OutgoingWindow: 1 << 20,
				Handle: wire.Some(l.attach.Handle), DeliveryCount: wire.Some(0), LinkCredit: wire.Some(credit),
			})
		}
		window(4, 10)
		synctest.Wait()
		require.Len(t, transfers, 4, "the first is half out")
		<-time.After(2 * time.Second) // and given up
		quiet()
		require.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateModified}}, p.outcomes())
		for i := range 3 { // others wait behind it, and are given up too or not begun
			p.deliver("orders", data(fmt.Sprint(i+2)))
			<-time.After(1500 * time.Millisecond)
		}
		for len(bodies) == 0 {
			window(4, 10)
			synctest.Wait()
		}
		p.deliver("orders", data("last"))
		for len(bodies) < 2 {
			window(4, 10)
			synctest.Wait()
		}
		for i, body := range []string{"a", "e"} {
			var m amqp.Message
			require.NoError(t, m.UnmarshalBinary(bodies[i]))
			assert.Equal(t, strings.Repeat(body, size), string(m.GetData()), "as its handler returned it")
		}
		p.mute(wire.CodeTransfer)
		p.settle(l.channel, 0, wire.State{Kind: wire.StateAccepted})
		p.settle(l.channel, 1, wire.State{Kind: wire.StateAccepted})
		quiet()
		shutdown(t, b)
	})
}
