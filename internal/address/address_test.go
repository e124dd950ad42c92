package address_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/address"
)

func TestParse_textualForms(t *testing.T) {
	for text, want := range map[string]address.Address{
		"orders":             {Kind: address.KindQueue, Name: "orders"},
		"queue:orders":       {Kind: address.KindQueue, Name: "orders"},
		"queue:/orders":      {Kind: address.KindQueue, Name: "/orders"},
		"queue:raw:x":        {Kind: address.KindQueue, Name: "raw:x"},
		"topic:prices":       {Kind: address.KindTopic, Name: "prices"},
		"raw:orders":         {Kind: address.KindRaw, Name: "orders"},
		"raw:/queues/a":      {Kind: address.KindRaw, Name: "/queues/a"},
		"/queues/orders":     {Kind: address.KindRaw, Name: "/queues/orders"},
		"Queue:orders":       {Kind: address.KindQueue, Name: "Queue:orders"},
		" ":                  {Kind: address.KindQueue, Name: " "},
		"a::b":               {Kind: address.KindQueue, Name: "a::b"},
		"größe/\u65e5\u672c": {Kind: address.KindQueue, Name: "größe/\u65e5\u672c"},
	} {
		got, err := address.Parse(text)
		if assert.NoError(t, err, "%q", text) {
			assert.Equal(t, want, got, "%q", text)
		}
	}
}

func TestParse_refusesWhatHasNoName(t *testing.T) {
	for _, text := range []string{"", "queue:", "topic:", "raw:", "bad\xff", "raw:\xc3", "topic:a\x80"} {
		_, err := address.Parse(text)
		assert.ErrorIs(t, err, address.ErrInvalid, "%q", text)
	}
}

func TestAddress_nodePerDialect(t *testing.T) {
	type node = address.Node
	for _, tc := range []struct {
		text    string
		dialect address.Dialect
		source  node
		target  node
	}{
		{"orders", address.Generic, node{"orders", "queue"}, node{"orders", "queue"}},
		{"orders", address.Artemis, node{"orders", "queue"}, node{"orders", "queue"}},
		{"orders", address.Auto, node{"orders", "queue"}, node{"orders", "queue"}},
		{"orders", address.ServiceBus, node{"orders", ""}, node{"orders", ""}},
		{"orders", address.RabbitMQ, node{"/queues/orders", ""}, node{"/queues/orders", ""}},
		{"topic:prices", address.Generic, node{"prices", "topic"}, node{"prices", "topic"}},
		{"topic:prices", address.Artemis, node{"prices", "topic"}, node{"prices", "topic"}},
		{"topic:prices", address.ServiceBus, node{"prices", ""}, node{"prices", ""}},
		{"raw:x y", address.Generic, node{"x y", ""}, node{"x y", ""}},
		{"raw:x y", address.Artemis, node{"x y", ""}, node{"x y", ""}},
		{"raw:x y", address.RabbitMQ, node{"x y", ""}, node{"x y", ""}},
		{"/exchanges/e/k", address.RabbitMQ, node{"/exchanges/e/k", ""}, node{"/exchanges/e/k", ""}},
	} {
		a, err := address.Parse(tc.text)
		require.NoError(t, err)
		source, err := a.Source(tc.dialect)
		require.NoError(t, err)
		assert.Equal(t, tc.source, source, "%s as a source of %s", tc.text, tc.dialect)
		target, err := a.Target(tc.dialect)
		require.NoError(t, err)
		assert.Equal(t, tc.target, target, "%s as a target of %s", tc.text, tc.dialect)
	}
}

func TestAddress_rabbitMQHasTopicsOnlyToPublish(t *testing.T) {
	a, err := address.Parse("topic:prices/eu")
	require.NoError(t, err)
	_, err = a.Source(address.RabbitMQ)
	require.ErrorIs(t, err, address.ErrUnsupported)
	assert.ErrorContains(t, err, "bind a queue")
	assert.ErrorContains(t, err, "use Queue")
	node, err := a.Target(address.RabbitMQ)
	require.NoError(t, err)
	assert.Equal(t, address.Node{Address: "/exchanges/amq.topic/prices%2Feu"}, node)
}

// RabbitMQ splits a version 2 address at its slashes and decodes each part, so
// everything but RFC 3986's unreserved characters is encoded.
func TestAddress_rabbitMQPercentEncodesEveryByte(t *testing.T) {
	for name, want := range map[string]string{
		"aZ09-._~":   "aZ09-._~",
		"a b":        "a%20b",
		"a/b":        "a%2Fb",
		"100%":       "100%25",
		"a+b":        "a%2Bb",
		"#?&=:@!$'*": "%23%3F%26%3D%3A%40%21%24%27%2A",
		"é":          "%C3%A9",
		"\x00\x7f":   "%00%7F",
	} {
		a := address.Address{Kind: address.KindQueue, Name: name}
		node, err := a.Target(address.RabbitMQ)
		require.NoError(t, err)
		assert.Equal(t, "/queues/"+want, node.Address, "%q", name)
	}
}

func TestDetect_byProductThenHost(t *testing.T) {
	for _, tc := range []struct {
		product, host string
		want          address.Dialect
	}{
		{"RabbitMQ", "localhost", address.RabbitMQ},
		{"rabbitmq", "localhost", address.RabbitMQ},
		{"apache-activemq-artemis", "localhost", address.Artemis},
		{"", "ns.servicebus.windows.net", address.ServiceBus},
		{"", "NS.ServiceBus.Windows.Net", address.ServiceBus},
		{"RabbitMQ", "ns.servicebus.windows.net", address.RabbitMQ},
		{"", "servicebus.windows.net.example.org", address.Generic},
		{"qpid-cpp", "localhost", address.Generic},
		{"", "", address.Generic},
	} {
		assert.Equal(t, tc.want, address.Detect(tc.product, tc.host), "%q at %q", tc.product, tc.host)
	}
}

func TestDialect_namesAndValidity(t *testing.T) {
	names := []string{"auto", "generic", "artemis", "rabbitmq", "servicebus"}
	for i, name := range names {
		d := address.Dialect(i)
		assert.True(t, d.Valid())
		assert.Equal(t, name, d.String())
	}
	past := address.Dialect(len(names))
	assert.False(t, past.Valid())
	assert.Equal(t, "unknown", past.String())
}
