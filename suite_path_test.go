package amqpflow_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// scalars are values of every scalar type that go-amqp can send, at the edges
// where the encoding changes.
func scalars() map[string]any {
	return map[string]any{
		"true": true, "false": false,
		"ubyte": uint8(math.MaxUint8), "ushort": uint16(math.MaxUint16),
		"uint0": uint32(0), "smalluint": uint32(200), "uint": uint32(math.MaxUint32),
		"ulong0": uint64(0), "smallulong": uint64(200), "ulong": uint64(math.MaxUint64),
		"byte": int8(math.MinInt8), "short": int16(math.MinInt16),
		"smallint": int32(-100), "int": int32(math.MinInt32),
		"smalllong": int64(-100), "long": int64(math.MinInt64),
		"float": float32(1.5), "double": math.Pi,
		"str8": "smörgåsbord", "str32": strings.Repeat("x", 300), "empty": "",
		"binary": []byte{0, 1, 0xff}, "timestamp": time.UnixMilli(1_700_000_000_123).UTC(),
		"uuid": amqp.UUID{1, 2, 3, 15: 16},
	}
}

// scalarsOf are the application properties that the test has set, with times
// in UTC: go-amqp decodes them into the local zone.
func scalarsOf(properties map[string]any) map[string]any {
	got := maps.Clone(properties)
	delete(got, ownerProperty)
	for name, value := range got {
		if at, ok := value.(time.Time); ok {
			got[name] = at.UTC()
		}
	}
	return got
}

// deliveriesOf subscribes to q and returns what comes, which is accepted.
func deliveriesOf(t *testing.T, b *amqpflow.Broker, q *testQueue, opts ...*amqpflow.SubscribeOptions) <-chan *amqpflow.Delivery {
	t.Helper()
	ch := make(chan *amqpflow.Delivery, 100)
	b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
		ch <- d
		return nil
	}, opts...)
	return ch
}

func messageOfGoAMQPArrivesAsSent(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	properties := fullProperties(t, p)
	sent := &amqp.Message{
		Header:                &amqp.MessageHeader{Durable: true, Priority: 7},
		Annotations:           amqp.Annotations{"x-opt-suite": "annotated"},
		Properties:            properties,
		ApplicationProperties: scalars(),
		Data:                  [][]byte{[]byte("body")},
	}
	q.put(t, sent)
	b := brokerAt(p)
	deliveries := deliveriesOf(t, b, q)
	mustConnect(t, b)

	d := await(t, patience, deliveries)

	assert.Equal(t, q.addr, d.Address())
	assert.Equal(t, 1, d.Attempt())
	assert.Equal(t, "the-id", d.MessageID())
	assert.Equal(t, "the-correlation", d.CorrelationID())
	assert.Equal(t, "the-subject", d.Subject())
	assert.Equal(t, "text/plain; charset=utf-8", d.ContentType())
	assert.Equal(t, "the-group", d.GroupID())
	assert.Equal(t, amqpflow.Raw("the-reply-to"), d.ReplyTo())
	assert.True(t, properties.CreationTime.Equal(d.CreationTime()), "%v", d.CreationTime())
	assert.Equal(t, "annotated", d.Annotation("x-opt-suite"))
	assert.Equal(t, "body", string(d.Data()))
	for name, value := range scalars() {
		assert.Equal(t, value, d.Header(name), name)
	}
	assert.Equal(t, scalars(), scalarsOf(d.Headers()))
	whole, err := d.AMQP()
	require.NoError(t, err)
	requireSameProperties(t, properties, whole.Properties)
	assert.Equal(t, uint8(7), whole.Header.Priority)
	assert.True(t, whole.Header.Durable)
}

// fullProperties has every field; the user is the one that sends, because
// RabbitMQ refuses any other.
func fullProperties(t *testing.T, p suitePeer) *amqp.MessageProperties {
	t.Helper()
	return &amqp.MessageProperties{
		MessageID: "the-id", UserID: []byte(userOf(t, p)), To: new("the-to"), Subject: new("the-subject"),
		ReplyTo: new("the-reply-to"), CorrelationID: "the-correlation",
		ContentType: new("text/plain; charset=utf-8"), ContentEncoding: new("gzip"),
		AbsoluteExpiryTime: new(time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)),
		CreationTime:       new(time.UnixMilli(1_700_000_000_123).UTC()),
		GroupID:            new("the-group"), GroupSequence: new(uint32(42)), ReplyToGroupID: new("the-reply-group"),
	}
}

// requireSameProperties compares times as times: go-amqp decodes them into the
// local zone.
func requireSameProperties(t *testing.T, want, got *amqp.MessageProperties) {
	t.Helper()
	require.NotNil(t, got)
	inUTC := func(p amqp.MessageProperties) amqp.MessageProperties {
		for _, field := range []**time.Time{&p.AbsoluteExpiryTime, &p.CreationTime} {
			if *field != nil {
				*field = new((*field).UTC())
			}
		}
		return p
	}
	require.Equal(t, inUTC(*want), inUTC(*got))
}

func messageIDsOfEveryType(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	ids := []struct {
		id   any
		text string
	}{
		{"a string", "a string"},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{amqp.UUID{0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0x00}, "123e4567-e89b-12d3-a456-426614174000"},
		{[]byte{0xca, 0xfe}, "cafe"},
		{nil, ""},
	}
	for _, id := range ids {
		m := textMessage("x")
		m.Properties = &amqp.MessageProperties{MessageID: id.id, CorrelationID: id.id}
		q.put(t, m)
	}
	b := brokerAt(p)
	deliveries := deliveriesOf(t, b, q)
	mustConnect(t, b)
	for _, id := range ids {
		d := await(t, patience, deliveries)
		assert.Equal(t, id.text, d.MessageID())
		assert.Equal(t, id.text, d.CorrelationID())
		whole, err := d.AMQP()
		require.NoError(t, err)
		if id.id != nil {
			assert.Equal(t, id.id, whole.Properties.MessageID)
			assert.Equal(t, id.id, whole.Properties.CorrelationID)
		}
	}
	shutDown(t, b)

	b = brokerAt(p)
	mustConnect(t, b)
	for _, id := range ids {
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, "x",
			&amqpflow.PublishOptions{MessageID: id.id, CorrelationID: id.id}))
	}
	for i, m := range q.take(t, len(ids)) {
		assert.Equal(t, ids[i].id, m.Properties.CorrelationID)
		if ids[i].id == nil {
			assert.IsType(t, amqp.UUID{}, m.Properties.MessageID, "random unless told otherwise")
			continue
		}
		assert.Equal(t, ids[i].id, m.Properties.MessageID)
	}
}

func publishedMessageIsReadByGoAMQP(t *testing.T, p suitePeer) {
	type order struct{ Number int }
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)
	passed := func(v any, opts ...*amqpflow.PublishOptions) *amqp.Message {
		require.NoError(t, b.Publisher().Publish(patient(t), q.addr, v, opts...))
		return q.take(t, 1)[0]
	}

	m := passed(order{Number: 7}, &amqpflow.PublishOptions{
		Subject: "the-subject", GroupID: "the-group", ReplyTo: amqpflow.Raw("/the/reply-to"),
		Headers: scalars(), Annotations: amqp.Annotations{"x-opt-suite": "annotated"},
		TTL: time.Hour, Priority: new(uint8(2)),
	})
	assert.JSONEq(t, `{"Number":7}`, string(slices.Concat(m.Data...)))
	assert.Equal(t, "application/json", text(m.Properties.ContentType))
	assert.Equal(t, "the-subject", text(m.Properties.Subject))
	assert.Equal(t, "the-group", text(m.Properties.GroupID))
	assert.Equal(t, "/the/reply-to", text(m.Properties.ReplyTo))
	assert.Equal(t, scalars(), scalarsOf(m.ApplicationProperties))
	assert.Equal(t, "annotated", m.Annotations["x-opt-suite"])
	assert.True(t, m.Header.Durable)
	assert.Equal(t, uint8(2), m.Header.Priority)
	assert.LessOrEqual(t, m.Header.TTL, time.Hour)
	assert.Greater(t, m.Header.TTL, time.Hour-2*patience)
	assert.Zero(t, m.Header.DeliveryCount)

	m = passed("text", &amqpflow.PublishOptions{NonDurable: true})
	assert.Equal(t, [][]byte{[]byte("text")}, m.Data)
	assert.Equal(t, "text/plain", text(m.Properties.ContentType))
	assert.False(t, m.Header != nil && m.Header.Durable)

	m = passed([]byte{1, 2, 3})
	assert.Equal(t, [][]byte{{1, 2, 3}}, m.Data)
	assert.Equal(t, "application/octet-stream", text(m.Properties.ContentType))
	assert.Equal(t, uint8(4), m.Header.Priority)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func publishedAMQPMessageIsUnchanged(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	b := brokerAt(p)
	mustConnect(t, b)
	properties := fullProperties(t, p)
	properties.ContentEncoding = nil // which section 3.2.4 allows for data alone
	require.NoError(t, b.Publisher().Publish(patient(t), q.addr, &amqp.Message{
		Header: &amqp.MessageHeader{Durable: true, Priority: 7}, Properties: properties,
		ApplicationProperties: scalars(), Value: map[string]any{"k": int64(5)},
	}))

	m := q.take(t, 1)[0]

	requireSameProperties(t, properties, m.Properties)
	assert.Equal(t, scalars(), scalarsOf(m.ApplicationProperties))
	assert.Equal(t, map[string]any{"k": int64(5)}, m.Value)
	assert.Equal(t, uint8(7), m.Header.Priority)
}

// deliveryCountPassesBothWays fails one attempt in each client and reads the
// count in the other.
func deliveryCountPassesBothWays(t *testing.T, p suitePeer) {
	q := p.newQueue(t, testQueueOptions{})
	q.putBodies(t, "x")
	ctx := patient(t)
	receiver, err := rawSession(t, p).NewReceiver(ctx, q.node, &amqp.ReceiverOptions{SourceCapabilities: q.caps, Credit: -1})
	require.NoError(t, err)
	require.NoError(t, receiver.IssueCredit(1))
	m, err := receiver.Receive(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, receiver.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	require.NoError(t, receiver.Close(ctx))

	b := brokerAt(p)
	seen := make(chan int, 2)
	stopping := make(chan struct{})
	calls := 0
	b.Subscribe(q.addr, func(_ context.Context, d *amqpflow.Delivery) error {
		calls++
		if calls <= cap(seen) { // what was released may come once more before the link drains
			seen <- d.Attempt()
		}
		if calls == 1 {
			return amqpflow.Retry(assert.AnError)
		}
		<-stopping
		return amqpflow.Release()
	}, &amqpflow.SubscribeOptions{Credit: 1})
	mustConnect(t, b)
	require.Equal(t, 2, await(t, patience, seen), "go-amqp's attempt and this one")
	require.Equal(t, 3, await(t, patience, seen))
	close(stopping)
	shutDown(t, b)

	assert.Equal(t, uint32(2), countOf(q.take(t, 1)[0]))
}
