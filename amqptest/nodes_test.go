package amqptest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

func TestServer_listsItsNodes(t *testing.T) {
	s := newServer(t, nil)
	assert.Empty(t, s.Nodes())
	require.NoError(t, s.Put("orders"))
	require.NoError(t, s.Put(amqpflow.Topic("prices")))
	sender(t, connect(t, s, nil), "asked for", nil)
	assert.Equal(t, []string{"asked for", "orders", "prices"}, s.Nodes())
}
