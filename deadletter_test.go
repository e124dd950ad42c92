package amqpflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestMaxAttempts_rejectsTheLastRetryWithoutAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(_ context.Context, d *amqpflow.Delivery) error {
			switch string(d.Data()) {
			case "released":
				return amqpflow.Release()
			case "fine":
				return nil
			case "rejected":
				return amqpflow.Reject(errors.New("own words"))
			case "marked":
				d.Mark(errors.New("marked"))
				return nil
			}
			return errors.New("the database is away")
		}, &amqpflow.SubscribeOptions{MaxAttempts: 3, RetryMin: -1})
		for _, tc := range []struct {
			count       uint32
			body        string
			want        wire.StateKind
			description string
		}{
			{0, "fails", wire.StateModified, ""},
			{1, "fails", wire.StateModified, ""},
			{2, "fails", wire.StateRejected, "the database is away"},
			{9, "fails", wire.StateRejected, "the database is away"},
			{2, "released", wire.StateReleased, ""},
			{2, "fine", wire.StateAccepted, ""},
			{2, "rejected", wire.StateRejected, "rejected: own words"},
			{2, "marked", wire.StateRejected, "marked"},
		} {
			p.deliver("orders", counted(tc.count, tc.body))
			d := p.awaitDisposition()
			assert.Equal(t, tc.want, d.State.Kind, "%v", tc)
			if tc.want == wire.StateRejected {
				assert.Contains(t, tc.description, d.State.Error.Description)
				assert.Equal(t, wire.Symbol("amqp:internal-error"), d.State.Error.Condition)
			}
		}
		shutdown(t, b)
	})
}

func TestDeadLetter_isARejectionWithoutAnAddress(t *testing.T) {
	err := amqpflow.DeadLetter(errors.New("no such customer"))
	assert.Equal(t, amqpflow.Rejected, amqpflow.OutcomeOf(err))
	assert.Equal(t, "dead-lettered: no such customer", err.Error())
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.DeadLetter(&amqp.Error{Condition: "shop:gone", Description: "no such customer"})
		}, nil)
		p.deliver("orders", data("x"))
		d := p.awaitDisposition()
		assert.Equal(t, wire.StateRejected, d.State.Kind)
		assert.Equal(t, wire.Symbol("shop:gone"), d.State.Error.Condition)
		assert.Contains(t, d.State.Error.Description, "no such customer")
		shutdown(t, b)
	})
}

// whole is a message with everything in it, also what go-amqp cannot decode.
func whole(t *testing.T) []byte {
	t.Helper()
	header := wire.Header{Durable: true, Priority: 7, TTL: 60_000, HasTTL: true, DeliveryCount: 4}
	payload := header.Append(nil)
	var err error
	payload, err = wire.AppendSection(payload, wire.CodeDeliveryAnnotations, wire.Map{{Key: wire.Symbol("x-hop"), Value: "one"}})
	require.NoError(t, err)
	payload, err = wire.AppendSection(payload, wire.CodeMessageAnnotations, wire.Map{
		{Key: wire.Symbol("x-opt-kept"), Value: wire.Char('ö')},
		{Key: wire.Symbol("x-opt-delivery-time"), Value: time.UnixMilli(1)},
		{Key: wire.Symbol("x-opt-delivery-delay"), Value: int64(5)},
		{Key: wire.Symbol("reserved"), Value: "x"},
		{Key: uint64(7), Value: "x"},
	})
	require.NoError(t, err)
	properties := wire.Properties{
		MessageID: uint64(17), UserID: []byte("somebody"), To: "to", Subject: "subject", ReplyTo: "reply", CorrelationID: wire.UUID{1},
		ContentType: "text/plain", ContentEncoding: "identity", AbsoluteExpiryTime: time.Now().Add(time.Hour),
		CreationTime: time.UnixMilli(1_700_000_000_000).UTC(), GroupID: "group", GroupSequence: wire.Some(3), ReplyToGroupID: "back",
	}
	payload = properties.Append(payload)
	payload, err = wire.AppendSection(payload, wire.CodeApplicationProperties, wire.Map{
		{Key: "tenant", Value: "acme"}, {Key: "price", Value: wire.Decimal64{1, 2}}, {Key: "dead-letter-reason", Value: "of an earlier time"},
	})
	require.NoError(t, err)
	payload = wire.AppendData(wire.AppendData(payload, []byte("one ")), []byte("two"))
	payload, err = wire.AppendSection(payload, wire.CodeFooter, wire.Map{{Key: wire.Symbol("x-sum"), Value: "12"}})
	require.NoError(t, err)
	return payload
}

func TestDeadLetter_toItselfByAnotherName(t *testing.T) {
	for _, tc := range []struct {
		dialect      amqpflow.Dialect
		source, dead amqpflow.Address
		same         bool
	}{
		{amqpflow.DialectRabbitMQ, "orders", "/queues/orders", true},
		{amqpflow.DialectRabbitMQ, "/queues/orders", "orders", true},
		{amqpflow.DialectRabbitMQ, "orders", "raw:orders", false},
		{amqpflow.DialectArtemis, "orders", "raw:orders", true},
		{amqpflow.DialectArtemis, "orders", "/queues/orders", false},
		{amqpflow.DialectArtemis, "topic:prices", "prices", false},
	} {
		t.Run(fmt.Sprintf("%s/%s to %s", tc.dialect, tc.source, tc.dead), func(t *testing.T) {
			s := amqptest.NewServer(&amqptest.Options{Dialect: tc.dialect})
			amqptest.Check(t, s)
			require.NoError(t, s.Declare("orders"))
			handle := func(context.Context, *amqpflow.Delivery) error { return nil }
			options := &amqpflow.SubscribeOptions{DeadLetter: tc.dead}

			b := amqpflow.New("amqp://localhost")
			sub := b.Subscribe(tc.source, handle, options)
			err := s.Connect(t.Context(), b)
			late := amqpflow.New("amqp://localhost")
			require.NoError(t, s.Connect(t.Context(), late))
			lateSub := late.Subscribe(tc.source, handle, options)
			lateErr := lateSub.Attached(t.Context())
			if tc.same {
				for _, err := range []error{err, lateErr} {
					var bad *amqpflow.OptionError
					require.ErrorAs(t, err, &bad)
					assert.Equal(t, "SubscribeOptions.DeadLetter", bad.Field)
				}
				<-lateSub.Done()
			} else {
				require.NoError(t, err)
				require.NoError(t, lateErr)
				require.NoError(t, sub.Close(t.Context()))
			}
			require.NoError(t, b.Shutdown(t.Context()))
			require.NoError(t, late.Shutdown(t.Context()))
		})
	}
}

func TestDeadLetter_keepsTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := func(amqpflow.PublishFunc) amqpflow.PublishFunc {
			return func(context.Context, amqpflow.Address, *amqp.Message) error {
				t.Error("middleware would have to decode it")
				return nil
			}
		}
		p, b, sub := serve(t, func(context.Context, *amqpflow.Delivery) error {
			return amqpflow.DeadLetter(errors.New("no such customer"))
		}, &amqpflow.SubscribeOptions{DeadLetter: "dead"}, &amqpflow.Options{PublishMiddleware: []amqpflow.PublishMiddleware{seen}})
		now := time.Now()
		p.deliver("orders", whole(t))
		sent := p.awaitCode(wire.CodeTransfer).perf.(*wire.Transfer)
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		assert.Equal(t, uint64(1), sub.Stats().Accepted)

		var got wire.Sections
		require.NoError(t, got.Parse(sent.Payload))
		assert.Equal(t, wire.Header{Durable: true, Priority: 7}, got.Header, "nothing that expires, no attempts")
		assert.Nil(t, got.DeliveryAnnotations)
		assert.Nil(t, got.Footer)
		annotations, err := wire.DecodeMap(got.MessageAnnotations)
		require.NoError(t, err)
		assert.Equal(t, wire.Map{{Key: wire.Symbol("x-opt-kept"), Value: wire.Char('ö')}}, annotations)
		var properties wire.Properties
		require.NoError(t, properties.Decode(got.Properties))
		assert.Equal(t, wire.Properties{
			MessageID: uint64(17), To: "to", Subject: "subject", ReplyTo: "reply", CorrelationID: wire.UUID{1},
			ContentType: "text/plain", ContentEncoding: "identity", CreationTime: time.UnixMilli(1_700_000_000_000).UTC(),
			GroupID: "group", GroupSequence: wire.Some(3), ReplyToGroupID: "back",
		}, properties)
		headers, err := wire.DecodeMap(got.ApplicationProperties)
		require.NoError(t, err)
		assert.Equal(t, wire.Map{
			{Key: "tenant", Value: "acme"}, {Key: "price", Value: wire.Decimal64{1, 2}},
			{Key: "dead-letter-reason", Value: "handler"}, {Key: "dead-letter-description", Value: "no such customer"},
			{Key: "dead-letter-source", Value: "orders"}, {Key: "dead-letter-attempts", Value: int64(5)},
			{Key: "dead-letter-time", Value: now.UTC()},
		}, headers)
		assert.Equal(t, 2, got.DataCount)
		assert.Equal(t, "one two", string(got.AppendBody(nil)))
		shutdown(t, b)
	})
}

func TestDeadLetter_ofEveryKindOfBody(t *testing.T) {
	value, err := wire.AppendAMQPValue(nil, "text")
	require.NoError(t, err)
	for name, tc := range map[string]struct{ payload, want []byte }{
		"nothing at all": {nil, data("")},
		"empty data":     {data(""), data("")},
		"a value":        {value, value},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { return amqpflow.DeadLetter(nil) },
					&amqpflow.SubscribeOptions{DeadLetter: "dead"})
				p.deliver("orders", tc.payload)
				var got wire.Sections
				require.NoError(t, got.Parse(p.awaitCode(wire.CodeTransfer).perf.(*wire.Transfer).Payload))
				assert.Equal(t, tc.want, got.RawBody())
				shutdown(t, b)
			})
		})
	}
}

func TestMaxAttempts_putsTheLastRetryAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := amqptest.NewServer(&amqptest.Options{MaxDeliveries: -1})
		require.NoError(t, server.Put("orders", amqp.NewMessage([]byte("poison"))))
		book := new(logbook)
		b := amqpflow.New("amqp://localhost", &amqpflow.Options{Logger: book.logger()})
		var attempts []int
		b.Subscribe("orders", func(_ context.Context, d *amqpflow.Delivery) error {
			attempts = append(attempts, d.Attempt())
			return fmt.Errorf("attempt %d", d.Attempt())
		}, &amqpflow.SubscribeOptions{MaxAttempts: 4, DeadLetter: "dead"})
		require.NoError(t, server.Connect(t.Context(), b))
		<-time.After(10 * time.Second)
		assert.Equal(t, []int{1, 2, 3, 4}, attempts)
		letters := server.Messages("dead")
		require.Len(t, letters, 1)
		assert.Equal(t, "poison", string(letters[0].GetData()))
		headers := letters[0].ApplicationProperties
		assert.Equal(t, "max-attempts", headers["dead-letter-reason"])
		assert.Equal(t, "attempt 4", headers["dead-letter-description"])
		assert.Equal(t, int64(4), headers["dead-letter-attempts"])
		assert.Empty(t, server.DeadLetters("orders"))
		assert.Empty(t, server.Messages("orders"))
		book.assertLine(t, "level=WARN", "dead-lettered", "to=dead", "attempt=4", `error="attempt 4"`)
		shutdown(t, b)
		require.NoError(t, server.Close())
	})
}

// A dead letter that is not confirmed is a retry, and the message is never lost.
func TestDeadLetter_thatIsNotConfirmedIsARetry(t *testing.T) {
	for name, answer := range map[string]func(p *peer, f frame){
		"refused": func(p *peer, f frame) {
			p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateRejected, Error: &wire.Error{Condition: "acme:full"}})
		},
		"unroutable": func(p *peer, f frame) {
			p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{Kind: wire.StateReleased})
		},
		"without an outcome": func(p *peer, f frame) { p.settle(f.channel, f.perf.(*wire.Transfer).DeliveryID.Value, wire.State{}) },
		"too late": func(p *peer, f frame) {
			time.AfterFunc(31*time.Second, func() { p.answer(f) })
		},
		"link lost": func(p *peer, f frame) {
			p.send(f.channel, &wire.Detach{Handle: f.perf.(*wire.Transfer).Handle, Closed: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported []error
				p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { return errors.New("x") },
					&amqpflow.SubscribeOptions{DeadLetter: "dead", MaxAttempts: 1}, &amqpflow.Options{
						IdleTimeout: -1, Observer: &amqpflow.Observer{Error: func(err error) { reported = append(reported, err) }},
					})
				amqpflow.WithoutJitter(b)
				p.on(wire.CodeTransfer, func(f frame) bool { answer(p, f); return true })
				started := time.Now()
				p.deliver("orders", data("x"))
				want := 100 * time.Millisecond
				if name == "too late" {
					want += 30 * time.Second
					<-time.After(30 * time.Second)
				}
				d := p.awaitDisposition()
				assert.Equal(t, wire.StateModified, d.State.Kind)
				assert.InDelta(t, want, time.Since(started), float64(gathering))
				<-time.After(time.Second)
				require.Len(t, reported, 1)
				assert.ErrorContains(t, reported[0], "amqpflow: dead-letter a delivery from \"orders\"")
				shutdown(t, b)
			})
		})
	}
}

// The context that a handler used up is not that of its dead letter.
func TestDeadLetter_afterTheHandlersTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := serve(t, func(ctx context.Context, _ *amqpflow.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}, &amqpflow.SubscribeOptions{DeadLetter: "dead", MaxAttempts: 1, HandlerTimeout: time.Second})
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		assert.Len(t, p.sent(wire.CodeTransfer), 1)
		shutdown(t, b)
	})
}

// While the broker drains, what fails is still put aside, be it a handler's or
// a Stream's.
func TestDeadLetter_whileTheBrokerDrains(t *testing.T) {
	t.Run("handler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := make(chan struct{})
			p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error {
				close(begun)
				<-time.After(time.Second)
				return amqpflow.DeadLetter(errors.New("x"))
			}, &amqpflow.SubscribeOptions{DeadLetter: "dead"})
			p.deliver("orders", data("x"))
			<-begun
			shutdown(t, b)
			assert.Len(t, p.sent(wire.CodeTransfer), 1)
			assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}}, p.outcomes())
		})
	})
	t.Run("stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, b, s := stream(t, &amqpflow.SubscribeOptions{DeadLetter: "dead"})
			r := read(t.Context(), s, func(d *amqpflow.Delivery) {
				<-time.After(time.Second)
				assert.NoError(t, d.Settle(t.Context(), amqpflow.DeadLetter(errors.New("x"))))
				assert.ErrorIs(t, d.Accept(t.Context()), amqpflow.ErrSettled)
			})
			p.deliver("orders", data("x"))
			quiet()
			shutdown(t, b)
			assert.Equal(t, "x", <-r.got)
			require.NoError(t, <-r.end)
			assert.Len(t, p.sent(wire.CodeTransfer), 1)
			assert.Equal(t, map[uint32][]wire.StateKind{0: {wire.StateAccepted}}, p.outcomes())
		})
	})
}

// The peer takes back what is being put aside: its answer is ErrLinkLost, and
// its place in the window is free.
func TestDeadLetter_takenBackMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := new(logbook)
		p, b, _ := serve(t, func(context.Context, *amqpflow.Delivery) error { return amqpflow.DeadLetter(errors.New("x")) },
			&amqpflow.SubscribeOptions{DeadLetter: "dead", Credit: 1}, &amqpflow.Options{Logger: book.logger()})
		p.on(wire.CodeTransfer, func(f frame) bool {
			p.send(p.link("orders", wire.RoleReceiver).channel, &wire.Disposition{Role: wire.RoleSender, Settled: true, State: wire.State{Kind: wire.StateReleased}})
			time.AfterFunc(time.Second, func() { p.answer(f) })
			return true
		})
		p.deliver("orders", data("x"))
		assert.Equal(t, wire.StateReleased, p.awaitDisposition().State.Kind)
		quiet()
		book.assertLine(t, "level=ERROR", "settlement lost", "took the delivery back")
		<-time.After(time.Second)
		p.on(wire.CodeTransfer, nil)
		p.deliver("orders", data("y"))
		assert.Equal(t, wire.StateAccepted, p.awaitDisposition().State.Kind)
		shutdown(t, b)
	})
}
