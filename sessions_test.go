package amqpflow

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A subscription may still choose the publisher's session when that is lost and
// counted out, and leave it at once.
func TestSessions_countASessionOutOnce(t *testing.T) {
	var ss sessions
	ss.init(1)
	assert.NoError(t, ss.take())
	publisher := &session{links: 1}
	assert.True(t, ss.leave(publisher))
	assert.NoError(t, ss.take()) // the one after it
	s, fresh := ss.choose(publisher)
	assert.Same(t, publisher, s)
	assert.False(t, fresh)
	assert.False(t, ss.leave(s))
	assert.Equal(t, 1, ss.used)
}
