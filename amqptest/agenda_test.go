package amqptest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// living is a message with that time-to-live.
func living(id string, ttl time.Duration) *amqp.Message {
	m := text(id)
	m.Header = &amqp.MessageHeader{Priority: 4, TTL: ttl}
	return m
}

func ids(ms []*amqp.Message) []string {
	var r []string
	for _, m := range ms {
		r = append(r, m.Properties.MessageID.(string))
	}
	return r
}

func TestExpiry_neverDeliversWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		snd := sender(t, ses, "orders", nil)
		absolute := text("absolute")
		absolute.Properties.AbsoluteExpiryTime = new(time.Now().Add(3 * time.Second))
		for _, m := range []*amqp.Message{
			living("5s", 5*time.Second), living("for ever", 0), living("1s", time.Second), absolute, living("9s", 9*time.Second),
		} {
			require.NoError(t, snd.Send(t.Context(), m, nil))
		}
		for _, step := range []struct {
			after time.Duration
			left  []string
			dead  []string
		}{
			{0, []string{"5s", "for ever", "1s", "absolute", "9s"}, nil},
			{time.Second, []string{"5s", "for ever", "absolute", "9s"}, []string{"1s"}},
			{2 * time.Second, []string{"5s", "for ever", "9s"}, []string{"1s", "absolute"}},
			{2 * time.Second, []string{"for ever", "9s"}, []string{"1s", "absolute", "5s"}},
		} {
			<-time.After(step.after)
			synctest.Wait()
			assert.Equal(t, step.left, ids(s.Messages("orders")))
			assert.Equal(t, step.dead, ids(s.DeadLetters("orders")))
		}
		rcv := manual(t, ses, "orders", 2)
		for range 2 {
			m := receive(t, rcv)
			if m.Properties.MessageID == "9s" {
				assert.Equal(t, 4*time.Second, m.Header.TTL, "what is left of it")
			}
			require.NoError(t, rcv.AcceptMessage(t.Context(), m))
		}
	})
}

func TestExpiry_ofWhatAConsumerHeldComesWhenItIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", living("0", time.Second)))
		rcv := manual(t, connect(t, s, nil), "orders", 2)
		m := receive(t, rcv)
		<-time.After(2 * time.Second)
		assert.Empty(t, s.DeadLetters("orders"))
		require.NoError(t, rcv.ReleaseMessage(t.Context(), m))
		synctest.Wait()
		assert.Equal(t, []string{"0"}, ids(s.DeadLetters("orders")))
		assert.Nil(t, rcv.Prefetched())
		require.NoError(t, s.Idle(t.Context()))
	})
}

func TestExpiry_goesWhereTheNodeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Declare("orders", &NodeOptions{TTL: time.Minute, DeadLetter: "dead", Expiry: "expired"}))
		require.NoError(t, s.Put("orders", living("short", time.Second), living("long", time.Hour), text("plain")))
		<-time.After(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"short", "long", "plain"}, ids(s.Messages("expired")))
		assert.Empty(t, s.Messages("dead"))
		require.NoError(t, s.Idle(t.Context()), "nobody receives them")
		<-time.After(time.Hour)
		assert.Len(t, s.Messages("expired"), 3, "what is dead does not die again")
	})
}

func TestExpiry_forgetsTheTimesOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		rcv := manual(t, connect(t, s, nil), "orders", 0)
		for range 1000 {
			require.NoError(t, s.Put("orders", living("0", time.Hour)))
			require.NoError(t, rcv.IssueCredit(1))
			require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
		}
		assert.Less(t, len(s.nodes["orders"].queues[0].moments), 100)
	})
}

func TestSchedule_deliversWhenTheAnnotationSays(t *testing.T) {
	for name, annotations := range map[string]func(due time.Time) amqp.Annotations{
		"timestamp": func(due time.Time) amqp.Annotations { return amqp.Annotations{"x-opt-delivery-time": due} },
		"long":      func(due time.Time) amqp.Annotations { return amqp.Annotations{"x-opt-delivery-time": due.UnixMilli()} },
		"ulong": func(due time.Time) amqp.Annotations {
			return amqp.Annotations{"x-opt-delivery-time": uint64(due.UnixMilli())}
		},
		"delay": func(time.Time) amqp.Annotations { return amqp.Annotations{"x-opt-delivery-delay": int32(6000)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				ses := connect(t, s, nil)
				rcv := manual(t, ses, "orders", 5)
				start := time.Now()
				later := text("later")
				later.Annotations = annotations(start.Add(6 * time.Second))
				snd := sender(t, ses, "orders", nil)
				require.NoError(t, snd.Send(t.Context(), later, nil))
				require.NoError(t, snd.Send(t.Context(), text("at once"), nil))
				assert.Equal(t, "at once", receive(t, rcv).Properties.MessageID)
				assert.Equal(t, []string{"later"}, bodies(t, s))
				m := receive(t, rcv)
				assert.Equal(t, 6*time.Second, time.Since(start))

				require.NoError(t, rcv.ModifyMessage(t.Context(), m, &amqp.ModifyMessageOptions{
					DeliveryFailed: true, Annotations: annotations(time.Now().Add(6 * time.Second)),
				}))
				m = receive(t, rcv)
				assert.Equal(t, 12*time.Second, time.Since(start))
				assert.EqualValues(t, 1, m.Header.DeliveryCount)
				require.NoError(t, rcv.ReleaseMessage(t.Context(), m))
				receive(t, rcv)
				assert.Equal(t, 12*time.Second, time.Since(start), "its time has come")
			})
		})
	}
}

func TestSchedule_takesATimeThatIsNoneForNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		rcv := manual(t, connect(t, s, nil), "orders", 9)
		for _, v := range []any{"soon", int64(-5), uint64(0), uint32(5), time.Now().Add(-time.Hour)} {
			m := text("0")
			m.Annotations = amqp.Annotations{"x-opt-delivery-time": v}
			require.NoError(t, s.Put("orders", m))
			receive(t, rcv)
		}
		for _, v := range []any{int64(1) << 62, uint64(1) << 63} {
			m := text("never")
			m.Annotations = amqp.Annotations{"x-opt-delivery-time": v}
			require.NoError(t, s.Put("orders", m))
			<-time.After(24 * time.Hour)
			assert.Nil(t, rcv.Prefetched())
		}
	})
}

func TestSchedule_keepsTheServerBusyUntilThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		expiring := living("expires first", time.Second)
		expiring.Annotations = amqp.Annotations{"x-opt-delivery-delay": int64(5000)}
		later := text("later")
		later.Annotations = amqp.Annotations{"x-opt-delivery-delay": int64(2000)}
		require.NoError(t, s.Put("orders", expiring, text("0"), later, text("1")))
		assert.Equal(t, []string{"expires first", "0", "later", "1"}, ids(s.Messages("orders")))
		rcv := manual(t, connect(t, s, nil), "orders", 9)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				assert.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
			}
		})
		start := time.Now()
		require.NoError(t, s.Idle(t.Context()))
		wg.Wait()
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, []string{"expires first"}, ids(s.DeadLetters("orders")))
	})
}

func TestServer_closesWithTimesStillToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		later := text("0")
		later.Annotations = amqp.Annotations{"x-opt-delivery-delay": int64(5000)}
		require.NoError(t, s.Put("orders", later, living("1", time.Hour)))
		require.NoError(t, s.Close())
	})
}
