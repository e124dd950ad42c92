package amqpflow

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// encoded is what Publish would send, read by go-amqp.
func encoded(t *testing.T, v any, o *PublishOptions) *amqp.Message {
	t.Helper()
	payload, err := encode(v, o)
	require.NoError(t, err)
	var sections wire.Sections
	require.NoError(t, sections.Parse(payload))
	m := new(amqp.Message)
	require.NoError(t, m.UnmarshalBinary(payload))
	return m
}

func encode(v any, o *PublishOptions) ([]byte, error) {
	if o == nil {
		o = new(PublishOptions)
	}
	return New("amqp://localhost").Publisher().encode(nil, "orders", v, o, DialectRabbitMQ)
}

func TestPublish_defaultsOfTheSections(t *testing.T) {
	m := encoded(t, []byte("x"), nil)
	assert.Equal(t, &amqp.MessageHeader{Durable: true, Priority: 4}, m.Header)
	assert.Equal(t, [][]byte{[]byte("x")}, m.Data)
	require.NotNil(t, m.Properties)
	id, ok := m.Properties.MessageID.(amqp.UUID)
	require.True(t, ok, "%T", m.Properties.MessageID)
	assert.Equal(t, byte(0x40), id[6]&0xf0, "a random UUID is of version 4")
	assert.Equal(t, byte(0x80), id[8]&0xc0)
	other := encoded(t, []byte("x"), nil)
	assert.NotEqual(t, id, other.Properties.MessageID)
	assert.Nil(t, m.Properties.CorrelationID)
	assert.Nil(t, m.Properties.Subject)
	assert.Nil(t, m.Properties.GroupID)
	assert.Nil(t, m.Properties.ReplyTo)
	assert.Nil(t, m.ApplicationProperties)
	assert.Nil(t, m.Annotations)
	assert.Nil(t, m.DeliveryAnnotations)
	assert.Nil(t, m.Footer)
}

// The standard's default of an absent priority is 4, but of an absent durable
// it is false: so the header is always there.
func TestPublish_headerSectionIsAlwaysOnTheWire(t *testing.T) {
	for _, o := range []*PublishOptions{nil, {NonDurable: true}, {Priority: new(uint8)}} {
		payload, err := encode("x", o)
		require.NoError(t, err)
		var sections wire.Sections
		require.NoError(t, sections.Parse(payload))
		assert.True(t, sections.HasHeader)
	}
}

func TestPublish_everyOptionReachesTheWire(t *testing.T) {
	priority := uint8(9)
	when := time.UnixMilli(1_700_000_000_123).UTC()
	headers := map[string]any{
		"bool": true, "ubyte": uint8(1), "ushort": uint16(2), "uint": uint32(3), "ulong": uint64(4),
		"byte": int8(-1), "short": int16(-2), "int": int32(-3), "long": int64(-4),
		"float": float32(1.5), "double": 2.5, "string": "s", "binary": []byte("b"), "time": when,
		"uuid": amqp.UUID(testUUID), "nil": nil,
	}
	m := encoded(t, "text", &PublishOptions{
		MessageID: "id", CorrelationID: uint64(7), Subject: "sub", ContentType: "text/html", GroupID: "g",
		ReplyTo: "replies", Headers: headers, Annotations: amqp.Annotations{"x-opt-a": "v"},
		TTL: 1500 * time.Millisecond, Priority: &priority, NonDurable: true,
	})
	assert.Equal(t, &amqp.MessageHeader{Priority: 9, TTL: 1500 * time.Millisecond}, m.Header)
	assert.Equal(t, "id", m.Properties.MessageID)
	assert.Equal(t, uint64(7), m.Properties.CorrelationID)
	assert.Equal(t, "sub", *m.Properties.Subject)
	assert.Equal(t, "text/html", *m.Properties.ContentType)
	assert.Equal(t, "g", *m.Properties.GroupID)
	assert.Equal(t, "/queues/replies", *m.Properties.ReplyTo, "by the peer's dialect")
	m.ApplicationProperties["time"] = m.ApplicationProperties["time"].(time.Time).UTC()
	assert.Equal(t, headers, m.ApplicationProperties)
	assert.Equal(t, amqp.Annotations{"x-opt-a": "v"}, m.Annotations)
	assert.Equal(t, "text", string(m.GetData()))
}

func TestPublish_messageIDOfEveryType(t *testing.T) {
	for _, id := range []any{"text", uint64(1), uint64(math.MaxUint64), amqp.UUID(testUUID), []byte("bin")} {
		m := encoded(t, "x", &PublishOptions{MessageID: id, CorrelationID: id})
		assert.Equal(t, id, m.Properties.MessageID)
		assert.Equal(t, id, m.Properties.CorrelationID)
	}
}

func TestPublish_contentTypeAndBodyByValue(t *testing.T) {
	for _, tc := range []struct {
		v           any
		wanted      string
		contentType string
		body        string
	}{
		{[]byte("raw"), "", "application/octet-stream", "raw"},
		{[]byte("raw"), "image/png", "image/png", "raw"},
		{"text", "", "text/plain", "text"},
		{"text", "text/html", "text/html", "text"},
		{json.RawMessage(`{"a":1}`), "", "application/json", `{"a":1}`},
		{json.RawMessage(`{"a":1}`), "application/x+json", "application/x+json", `{"a":1}`},
		{order{Name: "n"}, "", "application/json", `{"Name":"n"}`},
		{&order{Name: "n"}, "application/vnd.acme+json", "application/vnd.acme+json", `{"Name":"n"}`},
		{(*order)(nil), "", "application/json", "null"},
		{nil, "", "application/json", "null"},
		{7, "", "application/json", "7"},
		{order{Name: strings.Repeat("x", 1000)}, "", "application/json", `{"Name":"` + strings.Repeat("x", 1000) + `"}`},
	} {
		m := encoded(t, tc.v, &PublishOptions{ContentType: tc.wanted})
		assert.Equal(t, tc.contentType, *m.Properties.ContentType, "%T", tc.v)
		require.Len(t, m.Data, 1, "%T", tc.v)
		assert.Equal(t, tc.body, string(m.Data[0]), "%T", tc.v)
	}
}

// A message without any body section is one that strict peers refuse.
func TestPublish_emptyBodyIsAnEmptyDataSection(t *testing.T) {
	for _, v := range []any{[]byte(nil), []byte{}, "", json.RawMessage(nil), &amqp.Message{}, &amqp.Message{Data: [][]byte{}}} {
		payload, err := encode(v, nil)
		require.NoError(t, err)
		var sections wire.Sections
		require.NoError(t, sections.Parse(payload))
		assert.Equal(t, wire.BodyData, sections.Body, "%T", v)
		assert.Equal(t, 1, sections.DataCount, "%T", v)
		assert.Empty(t, sections.Data, "%T", v)
	}
}

func TestPublish_whatCannotBeEncodedIsAnEncodeError(t *testing.T) {
	for name, tc := range map[string]struct {
		v any
		o PublishOptions
	}{
		"a value JSON has no form for":       {v: make(chan int)},
		"a codec that is not there":          {v: order{}, o: PublishOptions{ContentType: "application/cbor"}},
		"a header of a struct":               {v: "x", o: PublishOptions{Headers: map[string]any{"h": order{}}}},
		"a header of a channel":              {v: "x", o: PublishOptions{Headers: map[string]any{"h": make(chan int)}}},
		"a header of a list":                 {v: "x", o: PublishOptions{Headers: map[string]any{"h": []any{1}}}},
		"a header of strings":                {v: "x", o: PublishOptions{Headers: map[string]any{"h": []string{"a"}}}},
		"a header of a map":                  {v: "x", o: PublishOptions{Headers: map[string]any{"h": map[string]any{"a": 1}}}},
		"a header of bad text":               {v: "x", o: PublishOptions{Headers: map[string]any{"h": "\xff"}}},
		"a header with a bad name":           {v: "x", o: PublishOptions{Headers: map[string]any{"\xff": "v"}}},
		"a reserved annotation":              {v: "x", o: PublishOptions{Annotations: amqp.Annotations{"opt": 1}}},
		"a numbered annotation":              {v: "x", o: PublishOptions{Annotations: amqp.Annotations{uint64(1): 1}}},
		"an annotation of a struct":          {v: "x", o: PublishOptions{Annotations: amqp.Annotations{"x-a": order{}}}},
		"a nil message":                      {v: (*amqp.Message)(nil)},
		"a message with a nil pointer value": {v: &amqp.Message{Value: (*int)(nil)}},
		"a message with a value of a struct": {v: &amqp.Message{Value: struct{}{}}},
		"a message with two kinds of body":   {v: &amqp.Message{Value: "x", Data: [][]byte{{1}}}},
		"a message with a reserved key":      {v: &amqp.Message{Annotations: amqp.Annotations{"opt": 1}}},
		"a message with a bad header":        {v: &amqp.Message{ApplicationProperties: map[string]any{"h": make(chan int)}}},
		"a message with a bad header option": {v: &amqp.Message{}, o: PublishOptions{Headers: map[string]any{"h": order{}}}},
		"a message with a bad message-id":    {v: &amqp.Message{Properties: &amqp.MessageProperties{MessageID: 1.5}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := encode(tc.v, &tc.o)
			var failed *EncodeError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, Address("orders"), failed.Address)
			assert.Contains(t, err.Error(), "amqpflow: encode ")
			require.Error(t, failed.Err)
		})
	}
}

func TestPublish_optionsOutOfRangeNameTheField(t *testing.T) {
	tooHigh := uint8(10)
	for field, o := range map[string]*PublishOptions{
		"MessageID":     {MessageID: 7},
		"CorrelationID": {CorrelationID: struct{}{}},
		"Subject":       {Subject: "\xff"},
		"ContentType":   {ContentType: "text/größe"},
		"GroupID":       {GroupID: "\xff"},
		"TTL":           {TTL: -time.Second},
		"Priority":      {Priority: &tooHigh},
		"ReplyTo":       {ReplyTo: "queue:"},
	} {
		for _, v := range []any{"x", &amqp.Message{}} {
			_, err := encode(v, o)
			var bad *OptionError
			if assert.ErrorAs(t, err, &bad, field) {
				assert.Equal(t, "PublishOptions."+field, bad.Field)
			}
		}
	}
	_, err := encode("x", &PublishOptions{MessageID: "\xff"})
	var bad *OptionError
	assert.ErrorAs(t, err, &bad)
}

func TestPublish_boundsOfTTLAndPriority(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{
		time.Millisecond:                  true,
		math.MaxUint32 * time.Millisecond: true,
		time.Millisecond - 1:              false,
		1:                                 false,
		math.MaxUint32*time.Millisecond + time.Nanosecond: false,
		math.MaxInt64: false,
		-1:            false,
	} {
		_, err := encode("x", &PublishOptions{TTL: ttl})
		assert.Equal(t, ok, err == nil, "%v", ttl)
	}
	for p := range uint8(10) {
		m := encoded(t, "x", &PublishOptions{Priority: &p})
		assert.Equal(t, p, m.Header.Priority)
	}
	assert.Equal(t, math.MaxUint32*time.Millisecond, encoded(t, "x", &PublishOptions{TTL: math.MaxUint32 * time.Millisecond}).Header.TTL)
}

// fullMessage has every section and property that go-amqp can write.
func fullMessage() *amqp.Message {
	str := func(s string) *string { return &s }
	when := time.UnixMilli(1_700_000_000_123).UTC()
	sequence := uint32(3)
	return &amqp.Message{
		Header:      &amqp.MessageHeader{Priority: 2, TTL: time.Second},
		Annotations: amqp.Annotations{"x-a": "v"},
		Properties: &amqp.MessageProperties{
			MessageID: "id", UserID: []byte("u"), To: str("to"), Subject: str("s"), ReplyTo: str("r"), CorrelationID: uint64(1),
			ContentType: str("c"), ContentEncoding: str("e"), AbsoluteExpiryTime: &when, CreationTime: &when, GroupID: str("g"),
			GroupSequence: &sequence, ReplyToGroupID: str("rg"),
		},
		ApplicationProperties: map[string]any{"h": "v"},
		Data:                  [][]byte{[]byte("one"), []byte("two")},
		Footer:                amqp.Annotations{"x-f": "v"},
	}
}

func TestPublish_amqpMessageGoesOutAsItIs(t *testing.T) {
	for _, m := range []*amqp.Message{
		fullMessage(),
		{Value: map[string]any{"a": int64(1)}},
		{Value: "text"},
		{Sequence: [][]any{{"a", int64(1)}}},
		{Data: [][]byte{[]byte("x")}},
	} {
		want, err := m.MarshalBinary()
		require.NoError(t, err)
		got, err := encode(m, nil)
		require.NoError(t, err)
		if len(m.ApplicationProperties)+len(m.Annotations) <= 2 { // maps of one entry have one order
			assert.Equal(t, want, got, "none of our defaults is put in")
		}
	}
}

func TestPublish_optionsGoOverAnAMQPMessageThatIsNotChanged(t *testing.T) {
	priority := uint8(7)
	o := &PublishOptions{
		MessageID: "other", CorrelationID: "corr", Subject: "subject", ContentType: "type", GroupID: "group", ReplyTo: "/reply",
		Headers: map[string]any{"h": "new", "i": int64(1)}, Annotations: amqp.Annotations{"x-b": "w"},
		TTL: 2 * time.Second, Priority: &priority, NonDurable: true,
	}
	m := fullMessage()
	out := encoded(t, m, o)
	assert.Equal(t, fullMessage(), m, "the caller's message is never changed")
	assert.Equal(t, &amqp.MessageHeader{Priority: 7, TTL: 2 * time.Second}, out.Header)
	assert.Equal(t, "other", out.Properties.MessageID)
	assert.Equal(t, "corr", out.Properties.CorrelationID)
	assert.Equal(t, "subject", *out.Properties.Subject)
	assert.Equal(t, "type", *out.Properties.ContentType)
	assert.Equal(t, "group", *out.Properties.GroupID)
	assert.Equal(t, "/reply", *out.Properties.ReplyTo)
	assert.Equal(t, "to", *out.Properties.To, "what no option sets stays")
	assert.Equal(t, map[string]any{"h": "new", "i": int64(1)}, out.ApplicationProperties)
	assert.Equal(t, amqp.Annotations{"x-a": "v", "x-b": "w"}, out.Annotations)

	bare := &amqp.Message{Data: [][]byte{[]byte("x")}}
	out = encoded(t, bare, o)
	assert.Equal(t, &amqp.Message{Data: [][]byte{[]byte("x")}}, bare)
	assert.Equal(t, "other", out.Properties.MessageID)
	assert.Equal(t, amqp.Annotations{"x-b": "w"}, out.Annotations)
}

// The caller's maps and slices are read, never kept or changed.
func TestPublish_keepsNothingOfItsArguments(t *testing.T) {
	headers := map[string]any{"h": "v"}
	body := []byte("body")
	payload, err := encode(body, &PublishOptions{Headers: headers})
	require.NoError(t, err)
	copy(body, "XXXX")
	var sections wire.Sections
	require.NoError(t, sections.Parse(payload))
	assert.Equal(t, "body", string(sections.Data))
	assert.Equal(t, map[string]any{"h": "v"}, headers)
}
