package amqptest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// pairs makes the names of links unique.
var pairs atomic.Int64

func newRabbit(t *testing.T) *Server {
	return newServer(t, &Options{Dialect: amqpflow.DialectRabbitMQ})
}

// manage sends one request to the management node, and returns the status and
// the body of the answer.
func manage(t *testing.T, ses *amqp.Session, method, path string, body any) (string, any) {
	t.Helper()
	paired := map[string]any{"paired": true}
	name := "pair-" + strconv.FormatInt(pairs.Add(1), 10)
	answers, err := ses.NewReceiver(t.Context(), managementNode, &amqp.ReceiverOptions{
		Name: name, TargetAddress: managementNode, Properties: paired, Credit: 1,
	})
	require.NoError(t, err)
	synctest.Wait()
	requests := sender(t, ses, managementNode, &amqp.SenderOptions{
		Name: name, SourceAddress: managementNode, Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	require.NoError(t, requests.Send(t.Context(), &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: "id", To: &path, Subject: &method, ReplyTo: new("$me")}, Value: body,
	}, nil))
	answer, err := answers.Receive(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, "id", answer.Properties.CorrelationID)
	return *answer.Properties.Subject, answer.Value
}

func queueOf(kind string, arguments map[string]any) map[string]any {
	all := map[string]any{"x-queue-type": kind}
	maps.Copy(all, arguments)
	return map[string]any{"durable": true, "arguments": all}
}

func TestManagement_declaresAndDeletesQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRabbit(t)
		ses := connect(t, s, nil)
		_, err := ses.NewReceiver(t.Context(), "/queues/a%20b", nil)
		assert.Equal(t, amqp.ErrCondNotFound, conditionOf(t, err))
		for _, step := range []struct {
			method, path string
			body         any
			status       string
			detail       string
		}{
			{"GET", "/queues/a%20b", amqp.Null{}, "404", "not found"},
			{"PUT", "/queues/a%20b", queueOf("quorum", nil), "201", "name:a b"},
			{"PUT", "/queues/a%20b", queueOf("quorum", nil), "200", "message_count:0"},
			{"PUT", "/queues/a%20b", queueOf("classic", nil), "409", "received 'classic' but current is 'quorum'"},
			{"PUT", "/queues/a%20b", queueOf("quorum", map[string]any{"x-max-length": int64(1)}), "409", "inequivalent"},
			{"PUT", "/queues/bad", queueOf("quorum", map[string]any{"x-max-length": "y"}), "409", "x-max-length"},
			{"PUT", "/queues/bad", queueOf("odd", nil), "409", "x-queue-type"},
			{"POST", "/bindings", map[string]any{"source": "amq.topic", "destination_queue": "a b", "binding_key": "k"}, "204", "<nil>"},
			{"POST", "/bindings", map[string]any{"source": "amq.topic", "destination_queue": "none", "binding_key": "k"}, "404", "none"},
			{"GET", "/bindings?src=amq.topic&dstq=a%20b&key=k", amqp.Null{}, "200", "binding_key:k"},
			{"DELETE", "/bindings/src=amq.topic;dstq=a%20b;key=k;args=", amqp.Null{}, "204", "<nil>"},
			{"GET", "/bindings?src=amq.topic&dstq=a%20b&key=k", amqp.Null{}, "200", "[]"},
			{"PUT", "/exchanges/mine", map[string]any{"type": "fanout"}, "204", "<nil>"},
			{"PUT", "/exchanges/mine", map[string]any{"type": "direct"}, "409", "inequivalent"},
			{"PUT", "/exchanges/odd", map[string]any{"type": "odd"}, "409", "odd"},
			{"DELETE", "/exchanges/mine", amqp.Null{}, "204", "<nil>"},
			{"DELETE", "/queues/a%20b/messages", amqp.Null{}, "200", "message_count:0"},
			{"DELETE", "/queues/a%20b", amqp.Null{}, "200", "message_count:0"},
			{"DELETE", "/queues/a%20b", amqp.Null{}, "200", "message_count:0"},
			{"DELETE", "/queues/a%20b/messages", amqp.Null{}, "404", "not found"},
		} {
			status, body := manage(t, ses, step.method, step.path, step.body)
			assert.Equal(t, step.status, status, "%s %s: %v", step.method, step.path, body)
			assert.Contains(t, fmt.Sprint(body), step.detail, "%s %s", step.method, step.path)
		}
	})
}

func TestManagement_endsTheSessionOfARequestItCannotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRabbit(t)
		ses := connect(t, s, nil)
		_, err := ses.NewSender(t.Context(), managementNode, nil)
		assert.Equal(t, amqp.ErrCondInvalidField, conditionOf(t, err), "not paired")
		paired := map[string]any{"paired": true}
		requests := sender(t, ses, managementNode, &amqp.SenderOptions{Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
		err = requests.Send(t.Context(), &amqp.Message{
			Properties: &amqp.MessageProperties{To: new("/queues/a"), Subject: new("GET")}, Value: amqp.Null{},
		}, nil)
		if err != nil { // the answer to a settled message may be there before Send returns
			assert.Equal(t, amqp.ErrCondPreconditionFailed, conditionOf(t, err))
		}
		synctest.Wait()
		_, err = ses.NewSender(t.Context(), managementNode, nil)
		assert.Equal(t, amqp.ErrCondPreconditionFailed, conditionOf(t, err), "nobody has credit for the answer")
	})
}

func TestExchange_routesByItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRabbit(t)
		ses := connect(t, s, nil)
		for queue, bind := range map[string][]string{
			"words": {"amq.topic/a.*", "amq.topic/a.#"}, "any": {"amq.topic/#"}, "direct": {"amq.direct/k"},
			"all": {"amq.fanout/", "amq.headers/x"},
		} {
			require.NoError(t, s.Declare(amqpflow.Queue(queue), &NodeOptions{Bind: bind}))
		}
		for target, want := range map[string]string{
			"/exchanges/amq.topic/a.b":    "any words",
			"/exchanges/amq.topic/a":      "any words",
			"/exchanges/amq.topic/b%2Fc":  "any",
			"/exchanges/amq.topic":        "any",
			"/exchanges/amq.direct/k":     "direct",
			"/exchanges/amq.direct/other": "released",
			"/exchanges/amq.direct":       "released",
			"/exchanges/amq.fanout/x":     "all",
			"/exchanges/amq.headers":      "all",
			"/queues/direct":              "direct",
		} {
			state := stateOfSend(t, sender(t, ses, target, nil), text("0"))
			var got []string
			for _, queue := range []string{"all", "any", "direct", "words"} {
				for range s.Messages(amqpflow.Queue(queue)) {
					got = append(got, queue)
				}
				_, _ = manage(t, ses, "DELETE", "/queues/"+queue+"/messages", amqp.Null{})
			}
			if _, released := state.(*amqp.StateReleased); released {
				got = append(got, "released")
			}
			assert.Equal(t, want, strings.Join(got, " "), target)
		}
		assert.Equal(t, []string{"/queues/all", "/queues/any", "/queues/direct", "/queues/words"}, s.Nodes())
		for target, want := range map[string]amqp.ErrCond{
			"/exchanges/none/k": amqp.ErrCondNotFound, "/exchanges//k": amqp.ErrCondInvalidField,
			"/queues/": amqp.ErrCondInvalidField, "/queues/a/b": amqp.ErrCondInvalidField, "/queues/a%zz": amqp.ErrCondInvalidField,
			"orders": amqp.ErrCondInvalidField, "/queue/orders": amqp.ErrCondInvalidField,
		} {
			_, err := ses.NewSender(t.Context(), target, nil)
			assert.Equal(t, want, conditionOf(t, err), target)
		}
		require.ErrorContains(t, s.Declare("all", &NodeOptions{Bind: []string{"amq.topic"}}), "NodeOptions.Bind: \"amq.topic\" is not EXCHANGE/KEY")
		require.ErrorContains(t, s.Declare("all", &NodeOptions{Bind: []string{"none/x"}}), "NodeOptions.Bind: there is no exchange")
		require.ErrorContains(t, s.Declare(amqpflow.Topic("prices"), nil), "an exchange")
	})
}

func TestExchange_isATopicOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRabbit(t)
		require.NoError(t, s.Put(amqpflow.Topic("prices"), text("lost")))
		require.NoError(t, s.Declare("mine", &NodeOptions{Bind: []string{"amq.topic/prices"}}))
		require.NoError(t, s.Put(amqpflow.Topic("prices"), text("0")))
		require.NoError(t, s.Put(amqpflow.Raw("/queues/m%69ne"), text("1")))
		for _, addr := range []amqpflow.Address{amqpflow.Topic("prices"), "mine", "/queues/mine", "/queues/m%69ne"} {
			got, err := Bodies[string](s, addr)
			require.NoError(t, err)
			assert.Equal(t, []string{"0", "1"}, got, addr)
		}
		assert.Nil(t, s.Messages(amqpflow.Topic("costs")))
		assert.Nil(t, s.Messages(amqpflow.Raw("/exchanges/none/x")))
		rcv := manual(t, connect(t, s, nil), "/queues/mine", 2)
		require.NoError(t, rcv.AcceptMessage(t.Context(), receive(t, rcv)))
		require.NoError(t, rcv.RejectMessage(t.Context(), receive(t, rcv), nil))
		synctest.Wait()
		assert.Len(t, s.Settlements(amqpflow.Topic("prices")), 2)
		assert.Equal(t, []string{"1"}, ids(s.DeadLetters(amqpflow.Topic("prices"))))
		require.ErrorContains(t, s.Put(amqpflow.Raw("mine"), text("2")), "amqp:invalid-field")
	})
}

func TestRabbitMQ_countsByTheTypeOfItsQueue(t *testing.T) {
	for kind, want := range map[QueueType][]uint32{QuorumQueue: {0, 0, 0, 1, 2, 3}, ClassicQueue: {0, 0, 1, 2, 3, 4}} {
		synctest.Test(t, func(t *testing.T) {
			s := newRabbit(t)
			require.NoError(t, s.Declare("orders", &NodeOptions{QueueType: kind}))
			m := text("0")
			m.Header = &amqp.MessageHeader{DeliveryCount: 9}
			c, ses := connectBoth(t, s, nil)
			require.NoError(t, sender(t, ses, "/queues/orders", nil).Send(t.Context(), m, nil))
			for i, lose := range []func(rcv *amqp.Receiver, m *amqp.Message) error{
				func(rcv *amqp.Receiver, m *amqp.Message) error { return rcv.ReleaseMessage(t.Context(), m) },
				func(rcv *amqp.Receiver, _ *amqp.Message) error { return rcv.Close(t.Context()) },
				func(rcv *amqp.Receiver, m *amqp.Message) error {
					return rcv.ModifyMessage(t.Context(), m, &amqp.ModifyMessageOptions{DeliveryFailed: true})
				},
				func(*amqp.Receiver, *amqp.Message) error { return ses.Close(t.Context()) },
				func(*amqp.Receiver, *amqp.Message) error { return c.Close() },
				func(rcv *amqp.Receiver, m *amqp.Message) error { return rcv.AcceptMessage(t.Context(), m) },
			} {
				if i > 3 {
					c, ses = connectBoth(t, s, nil)
				}
				rcv := manual(t, ses, "/queues/orders", 1)
				m := receive(t, rcv)
				assert.Equal(t, want[i], m.Header.DeliveryCount, "%s, attempt %d", kind, i)
				require.NoError(t, lose(rcv, m))
				if i == 0 || i == 2 {
					require.NoError(t, rcv.Close(t.Context()))
				}
				synctest.Wait()
			}
		})
	}
}

func TestRabbitMQ_keepsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&Options{Dialect: amqpflow.DialectRabbitMQ})
		require.NoError(t, s.Declare("orders"))
		c, _ := connectBoth(t, s, nil)
		assert.Equal(t, "RabbitMQ", c.Properties()["product"])
		for range 63 {
			_, err := c.NewSession(t.Context(), nil)
			require.NoError(t, err)
		}
		_, err := c.NewSession(t.Context(), nil)
		require.Error(t, err, "go-amqp keeps it, and ends the connection")
		c2, ses := connectBoth(t, s, nil)
		snd := sender(t, ses, "/queues/orders", nil)
		assert.EqualValues(t, 16<<20, snd.MaxMessageSize())
		for range 255 {
			sender(t, ses, "/queues/orders", nil)
		}
		_, err = ses.NewSender(t.Context(), "/queues/orders", nil)
		assert.Equal(t, amqp.ErrCondFramingError, conditionOf(t, err))
		_, err = c2.NewSession(t.Context(), nil)
		require.NoError(t, err, "the connection lives on")
		assertBroke(t, s.Close(), ruleHandleMax)
	})
}

func TestRabbitMQ_deadLettersByTheArgumentsOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRabbit(t)
		ses := connect(t, s, nil)
		_, _ = manage(t, ses, "PUT", "/queues/dead", queueOf("quorum", nil))
		status, body := manage(t, ses, "PUT", "/queues/orders", queueOf("quorum", map[string]any{
			"x-delivery-limit": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
			"x-max-length": int64(2), "x-overflow": "reject-publish", "x-message-ttl": int64(60000),
		}))
		require.Equal(t, "201", status, body)
		snd := sender(t, ses, "/queues/orders", nil)
		for i, want := range []amqp.DeliveryState{&amqp.StateAccepted{}, &amqp.StateAccepted{}, &amqp.StateRejected{}} {
			assert.IsType(t, want, stateOfSend(t, snd, text(strconv.Itoa(i))))
		}
		rcv := manual(t, ses, "/queues/orders", 3)
		first := receive(t, rcv)
		require.NoError(t, rcv.ModifyMessage(t.Context(), first, &amqp.ModifyMessageOptions{UndeliverableHere: true}))
		for range 2 {
			require.NoError(t, rcv.ModifyMessage(t.Context(), receive(t, rcv), &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		}
		synctest.Wait()
		dead := s.Messages("dead")
		assert.Equal(t, []string{"0", "1"}, ids(dead))
		assert.Equal(t, "delivery_limit", dead[1].Annotations["x-first-death-reason"])
		assert.EqualValues(t, 2, dead[1].Header.DeliveryCount)
	})
}
