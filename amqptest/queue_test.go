package amqptest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestQueue_settlesByOutcome(t *testing.T) {
	reason := &amqp.Error{Condition: "shop:no-such-item", Description: "unknown", Info: map[string]any{"item": "x", "n": int64(3)}}
	for name, test := range map[string]struct {
		settle  func(rcv *amqp.Receiver, m *amqp.Message) error
		record  Settlement
		waiting int
		dead    int
		count   uint32 // the delivery-count of what waits or is dead
	}{
		"accepted": {
			settle: func(rcv *amqp.Receiver, m *amqp.Message) error { return rcv.AcceptMessage(t.Context(), m) },
			record: Settlement{MessageID: "0", Outcome: amqpflow.Accepted, DeliveryCount: 4},
		},
		"rejected": {
			settle: func(rcv *amqp.Receiver, m *amqp.Message) error { return rcv.RejectMessage(t.Context(), m, reason) },
			record: Settlement{MessageID: "0", Outcome: amqpflow.Rejected, Error: reason, DeliveryCount: 4},
			dead:   1, count: 4,
		},
		"released": {
			settle:  func(rcv *amqp.Receiver, m *amqp.Message) error { return rcv.ReleaseMessage(t.Context(), m) },
			record:  Settlement{MessageID: "0", Outcome: amqpflow.Released, DeliveryCount: 4},
			waiting: 1, count: 4,
		},
		"modified": {
			settle:  func(rcv *amqp.Receiver, m *amqp.Message) error { return rcv.ModifyMessage(t.Context(), m, nil) },
			record:  Settlement{MessageID: "0", Outcome: amqpflow.Modified, DeliveryCount: 4},
			waiting: 1, count: 4,
		},
		"modified, delivery failed": {
			settle: func(rcv *amqp.Receiver, m *amqp.Message) error {
				return rcv.ModifyMessage(t.Context(), m, &amqp.ModifyMessageOptions{DeliveryFailed: true})
			},
			record:  Settlement{MessageID: "0", Outcome: amqpflow.Modified, DeliveryCount: 4},
			waiting: 1, count: 5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				m := text("0")
				m.Header = &amqp.MessageHeader{DeliveryCount: 4}
				require.NoError(t, s.Put("orders", m))
				rcv := manual(t, connect(t, s, nil), "orders", 1)
				require.NoError(t, test.settle(rcv, receive(t, rcv)))
				synctest.Wait()
				assert.Equal(t, []Settlement{test.record}, s.Settlements("orders"))
				waiting, dead := s.Messages("orders"), s.DeadLetters("orders")
				require.Len(t, waiting, test.waiting)
				require.Len(t, dead, test.dead)
				for _, m := range append(waiting, dead...) {
					assert.Equal(t, test.count, m.Header.DeliveryCount)
					assert.False(t, m.Header.FirstAcquirer)
				}
			})
		})
	}
}

func TestQueue_redeliversInOrderWithTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(3)...))
		rcv := manual(t, connect(t, s, nil), "orders", 3)
		var held []*amqp.Message
		for range 3 {
			m := receive(t, rcv)
			assert.Zero(t, m.Header.DeliveryCount)
			assert.True(t, m.Header.FirstAcquirer)
			held = append(held, m)
		}
		require.NoError(t, rcv.ReleaseMessage(t.Context(), held[2]))
		require.NoError(t, rcv.ModifyMessage(t.Context(), held[0], &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		require.NoError(t, rcv.ReleaseMessage(t.Context(), held[1]))
		synctest.Wait()
		require.NoError(t, rcv.IssueCredit(3))
		for i, count := range []uint32{1, 0, 0} {
			m := receive(t, rcv)
			assert.Equal(t, held[i].Properties.MessageID, m.Properties.MessageID)
			assert.Equal(t, count, m.Header.DeliveryCount)
			assert.False(t, m.Header.FirstAcquirer)
			require.NoError(t, rcv.AcceptMessage(t.Context(), m))
		}
	})
}

func TestQueue_givesBackWhatALostLinkOrConnectionHeld(t *testing.T) {
	for name, lose := range map[string]func(s *Server, c *amqp.Conn, ses *amqp.Session, rcv *amqp.Receiver) error{
		"link": func(_ *Server, _ *amqp.Conn, _ *amqp.Session, rcv *amqp.Receiver) error {
			return rcv.Close(context.Background())
		},
		"session": func(_ *Server, _ *amqp.Conn, ses *amqp.Session, _ *amqp.Receiver) error {
			return ses.Close(context.Background())
		},
		"connection": func(_ *Server, c *amqp.Conn, _ *amqp.Session, _ *amqp.Receiver) error { return c.Close() },
		"socket":     func(s *Server, _ *amqp.Conn, _ *amqp.Session, _ *amqp.Receiver) error { return s.Fault(Drop()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				require.NoError(t, s.Put("orders", numbered(100)...))
				c, ses := connectBoth(t, s, nil)
				rcv := manual(t, ses, "orders", 60)
				for i := range 60 {
					if m := receive(t, rcv); i%2 == 0 {
						require.NoError(t, rcv.AcceptMessage(t.Context(), m))
					}
				}
				synctest.Wait()
				require.NoError(t, lose(s, c, ses, rcv))
				synctest.Wait()
				want := []any{}
				for i, m := range numbered(100) {
					if i >= 60 || i%2 == 1 {
						want = append(want, m.Properties.MessageID)
					}
				}
				var got []any
				for _, m := range s.Messages("orders") {
					got = append(got, m.Properties.MessageID)
					assert.Zero(t, m.Header.DeliveryCount)
				}
				assert.Equal(t, want, got)
				assert.Len(t, s.Settlements("orders"), 30)
			})
		})
	}
}

func TestQueue_deadLettersAfterMaxDeliveries(t *testing.T) {
	for limit, deliveries := range map[int]int{0: generic.maxDeliveries, 3: 3, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, &Options{MaxDeliveries: limit})
			require.NoError(t, s.Put("orders", text("0")))
			rcv := manual(t, connect(t, s, nil), "orders", 20)
			synctest.Wait()
			for range 20 {
				m := rcv.Prefetched()
				if m == nil {
					break
				}
				require.NoError(t, rcv.ModifyMessage(t.Context(), m, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
				synctest.Wait()
			}
			if deliveries == 0 {
				assert.Len(t, s.Settlements("orders"), 20)
				return
			}
			assert.Len(t, s.Settlements("orders"), deliveries)
			dead := s.DeadLetters("orders")
			require.Len(t, dead, 1)
			assert.EqualValues(t, deliveries, dead[0].Header.DeliveryCount)
			assert.Empty(t, s.Messages("orders"))
		})
	}
}

func TestQueue_honoursUndeliverableHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(2)...))
		ses := connect(t, s, nil)
		rcv := manual(t, ses, "orders", 1)
		require.NoError(t, rcv.ModifyMessage(t.Context(), receive(t, rcv), &amqp.ModifyMessageOptions{UndeliverableHere: true}))
		require.NoError(t, rcv.IssueCredit(5))
		m := receive(t, rcv)
		assert.Equal(t, "1", m.Properties.MessageID)
		require.NoError(t, rcv.AcceptMessage(t.Context(), m))
		synctest.Wait()
		assert.Nil(t, rcv.Prefetched())
		assert.Equal(t, []string{"0"}, bodies(t, s))
		other := manual(t, ses, "orders", 1)
		m = receive(t, other)
		assert.Equal(t, "0", m.Properties.MessageID)
		require.NoError(t, other.AcceptMessage(t.Context(), m))
	})
}

func TestQueue_keepsEveryByteBehindTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		m := text("0")
		m.Header = &amqp.MessageHeader{Durable: true, Priority: 7}
		m.DeliveryAnnotations = amqp.Annotations{"x-hop": "1"}
		m.Annotations = amqp.Annotations{"x-kept": "old", "x-changed": "old"}
		m.ApplicationProperties = map[string]any{"a": int32(1)}
		m.Data = append(m.Data, []byte("second section"))
		m.Footer = amqp.Annotations{"x-sum": "2"}
		require.NoError(t, s.Put("orders", m))
		before := s.nodes["orders"].queues[0].waiting[0]
		rest := string(before.rest)

		rcv := manual(t, connect(t, s, nil), "orders", 1)
		got := receive(t, rcv)
		assert.Equal(t, &amqp.MessageHeader{Durable: true, Priority: 7, FirstAcquirer: true}, got.Header)
		assert.Equal(t, m.Data, got.Data)
		assert.Equal(t, m.Footer, got.Footer)
		assert.Equal(t, m.DeliveryAnnotations, got.DeliveryAnnotations)
		require.NoError(t, rcv.ReleaseMessage(t.Context(), got))
		synctest.Wait()
		assert.Equal(t, rest, string(s.nodes["orders"].queues[0].waiting[s.nodes["orders"].queues[0].head].rest))

		require.NoError(t, rcv.IssueCredit(1))
		require.NoError(t, rcv.ModifyMessage(t.Context(), receive(t, rcv), &amqp.ModifyMessageOptions{
			Annotations: amqp.Annotations{"x-changed": "new", "x-added": int64(5)},
		}))
		require.NoError(t, rcv.IssueCredit(1))
		got = receive(t, rcv)
		assert.Equal(t, amqp.Annotations{"x-kept": "old", "x-changed": "new", "x-added": int64(5)}, got.Annotations)
		assert.Equal(t, m.DeliveryAnnotations, got.DeliveryAnnotations)
		assert.Equal(t, m.ApplicationProperties, got.ApplicationProperties)
		assert.Equal(t, m.Data, got.Data)
		assert.Equal(t, m.Footer, got.Footer)
		require.NoError(t, rcv.AcceptMessage(t.Context(), got))
		synctest.Wait()
		assert.Equal(t, "0", s.Settlements("orders")[2].MessageID)
	})
}

func TestQueue_annotatesAMessageThatHadNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", text("0")))
		rcv := manual(t, connect(t, s, nil), "orders", 1)
		require.NoError(t, rcv.ModifyMessage(t.Context(), receive(t, rcv), &amqp.ModifyMessageOptions{
			Annotations: amqp.Annotations{"x-why": "busy"},
		}))
		synctest.Wait()
		ms := s.Messages("orders")
		require.Len(t, ms, 1)
		assert.Equal(t, amqp.Annotations{"x-why": "busy"}, ms[0].Annotations)
		assert.Equal(t, "0", string(ms[0].GetData()))

		require.NoError(t, rcv.IssueCredit(1))
		require.NoError(t, rcv.ModifyMessage(t.Context(), receive(t, rcv), &amqp.ModifyMessageOptions{
			Annotations: amqp.Annotations{"x-why": "still", "x-who": "me"},
		}))
		synctest.Wait()
		var sections wire.Sections
		require.NoError(t, sections.Parse(s.nodes["orders"].queues[0].all()[0].rest), "one section of each kind")
		assert.Equal(t, amqp.Annotations{"x-why": "still", "x-who": "me"}, s.Messages("orders")[0].Annotations)
	})
}

func TestQueue_sharesOutAmongConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		a := manual(t, connect(t, s, nil), "orders", 100)
		other := connect(t, s, nil)
		b, c := manual(t, other, "orders", 100), manual(t, other, "orders", 10)
		synctest.Wait()
		require.NoError(t, s.Put("orders", numbered(90)...))
		got := map[any]int{}
		count := func(rcv *amqp.Receiver) (n int) {
			synctest.Wait()
			for m := rcv.Prefetched(); m != nil; m = rcv.Prefetched() {
				got[m.Properties.MessageID]++
				require.NoError(t, rcv.AcceptMessage(t.Context(), m))
				n++
			}
			return n
		}
		assert.Equal(t, []int{40, 40, 10}, []int{count(a), count(b), count(c)})
		assert.Len(t, got, 90, "no message twice")
	})
}

func TestQueue_modelOfOrder(t *testing.T) {
	s := NewServer()
	q := s.makeNode("orders", kindQueue).queues[0]
	var held []*message
	next, rnd := uint64(0), uint64(1)
	for range 5_000 {
		rnd = rnd*6364136223846793005 + 1442695040888963407
		switch choice := rnd >> 33 % 5; {
		case choice < 2:
			q.put(&message{})
			next++
		case choice < 4 && q.len() > 0:
			held = append(held, q.take(q.head+int(rnd>>40)%q.len()))
		case len(held) > 0:
			i := int(rnd>>40) % len(held)
			q.giveBack(held[i])
			held = append(held[:i], held[i+1:]...)
		}
		ordered := slices.IsSortedFunc(q.waiting[q.head:], func(a, b *message) int { return cmp.Compare(a.seq, b.seq) })
		if !ordered || q.peek(&link{}) >= 0 != (q.len() > 0) {
			t.Fatalf("out of order after %d messages", next)
		}
	}
	require.EqualValues(t, next, q.len()+len(held))
}
