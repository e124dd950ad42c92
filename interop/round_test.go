// Package interop_test lets other people's AMQP 1.0 clients do a round against
// amqptest; README.md says what a round is.
package interop_test

import (
	"context"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// steps are what a client does in a round, in this order.
var steps = []string{"send", "receive", "outcomes", "redelivery", "request", "large", "drain", "browse", "idle"}

const (
	user     = "interop"
	password = "secret"
	// idleTimeout is the server's, which announces half of it; the idle step
	// lasts for longer than all of it.
	idleTimeout = 2 * time.Second
	// deadline is for a client as a whole, its start included.
	deadline = 50 * time.Second
)

func TestRound(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			argv := c.command(t)
			round(t, func(ctx context.Context, url string) { do(ctx, t, argv, url) })
		})
	}
}

// do runs a client with the URL, and wants every step of it.
func do(ctx context.Context, t *testing.T, argv []string, url string) {
	t.Helper()
	command := exec.CommandContext(ctx, argv[0], append(argv[1:], url)...)
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	require.NoError(t, err, "%s\n%s", stdout, &stderr)
	assert.Equal(t, "ok "+strings.Join(steps, "\nok ")+"\n", string(stdout))
	assert.Empty(t, stderr.String())
}

// round serves one client.
func round(t *testing.T, client func(ctx context.Context, url string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	server := amqptest.NewServer(&amqptest.Options{
		Users: map[string]string{user: password}, IdleTimeout: idleTimeout,
	})
	defer server.Close()
	amqptest.Check(t, server) // a round that fails shows the frames

	address, err := url.Parse(server.URL())
	require.NoError(t, err)
	address.User = url.UserPassword(user, password)
	client(ctx, address.String())

	checkBroker(ctx, t, server)
	amqptest.Check(t, server)
	assert.NoError(t, server.Close())
}

// checkBroker compares what the broker saw of a round.
func checkBroker(ctx context.Context, t *testing.T, server *amqptest.Server) {
	t.Helper()
	require.NoError(t, server.Idle(ctx)) // every queue is empty
	assert.Equal(t, []string{            // and no dynamic node is left
		"browsed", "drained", "idle", "large", "outcomes", "redelivered", "requests", "sent",
	}, server.Nodes())
	accepted := func(ids ...string) (r []amqptest.Settlement) {
		for _, id := range ids {
			r = append(r, amqptest.Settlement{MessageID: id, Outcome: amqpflow.Accepted})
		}
		return r
	}
	for address, want := range map[amqpflow.Address][]amqptest.Settlement{
		"sent":        accepted("s-0", "s-1", "s-2", "s-3", "s-4", "s-5", "s-6", "s-7", "s-8", "s-9"),
		"redelivered": accepted("r-0"),
		"requests":    accepted("q-0"),
		"large":       accepted("l-0"),
		"drained":     accepted("d-0", "d-1", "d-2"),
		"idle":        accepted("i-0"),
	} {
		assert.Equal(t, want, server.Settlements(address), address)
		assert.Empty(t, server.DeadLetters(address), address)
	}
	assert.Subset(t, server.Settlements("browsed"), accepted("b-0", "b-1"))
	checkOutcomes(t, server)
	checkHeartbeats(t, server)
}

// checkHeartbeats wants three from either side: nothing else keeps up a
// connection that is idle.
func checkHeartbeats(t *testing.T, server *amqptest.Server) {
	t.Helper()
	beats := map[bool]int{}
	for _, frame := range server.Frames() {
		if frame.Name == "heartbeat" {
			beats[frame.Sent]++
		}
	}
	assert.GreaterOrEqual(t, beats[false], 3, "of the client")
	assert.GreaterOrEqual(t, beats[true], 3, "of the server")
}

// checkOutcomes does not ask for the order: what is given back may come again
// before the rest is settled.
func checkOutcomes(t *testing.T, server *amqptest.Server) {
	t.Helper()
	got := map[string][]amqptest.Settlement{}
	for _, s := range server.Settlements("outcomes") {
		if s.Error != nil {
			assert.Equal(t, "interop:unwanted", string(s.Error.Condition))
			assert.Equal(t, "a description", s.Error.Description)
			s.Error = nil
		}
		id := s.MessageID
		s.MessageID = ""
		got[id] = append(got[id], s)
	}
	assert.Equal(t, map[string][]amqptest.Settlement{
		"accepted": {{Outcome: amqpflow.Accepted}},
		"rejected": {{Outcome: amqpflow.Rejected}},
		"released": {{Outcome: amqpflow.Released}, {Outcome: amqpflow.Accepted}},
		"modified": {{Outcome: amqpflow.Modified}, {Outcome: amqpflow.Accepted, DeliveryCount: 1}},
	}, got)
	dead := server.DeadLetters("outcomes")
	require.Len(t, dead, 1)
	assert.Equal(t, "rejected", dead[0].Properties.MessageID)
}
