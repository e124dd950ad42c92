package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

// TestCredentials: each dial asks for credentials anew, so that a client whose
// password was changed, or whose token has expired, is back once it is told
// the new one; until then it asks seldom, and says why.
func TestCredentials(t *testing.T) {
	rounds := fromEnv(t, roundsEnv, 1)
	total := &result{}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { total.faults += renewed(t, round) })
		})
	}
	total.runs = rounds
	tell(t, total)
}

func renewed(t *testing.T, round int) (faults int64) {
	t.Helper()
	const queue = amqpflow.Address("orders")
	server := amqptest.NewServer(&amqptest.Options{Users: map[string]string{"app": "good"}})
	var asked, dials atomic.Int64
	var secret atomic.Value
	secret.Store("good")
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{Credentials: func(context.Context) (amqp.SASLType, error) {
		asked.Add(1)
		return amqp.SASLTypePlain("app", secret.Load().(string)), nil
	}})
	handled := make(chan struct{}, 10)
	b.Subscribe(queue, func(context.Context, *amqpflow.Delivery) error {
		handled <- struct{}{}
		return nil
	})
	require.NoError(t, b.ConnectInProcess(t.Context(), func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		return server.Dial(ctx)
	}))

	pause(t.Context(), time.Duration(1+round)*time.Second)
	secret.Store("expired") // the client's is the one that no longer counts
	require.NoError(t, server.Fault(amqptest.Close(amqp.ErrCondUnauthorizedAccess, "the token has expired")))
	pause(t.Context(), 10*time.Minute)
	require.Error(t, b.Ready())
	assert.NotContains(t, b.Ready().Error(), "expired\"", "no secret is shown")
	assert.LessOrEqual(t, dials.Load(), int64(110), "it asks seldom")
	secret.Store("good")
	require.NoError(t, server.Put(queue, amqp.NewMessage([]byte("x"))))
	began := time.Now()
	<-handled
	assert.LessOrEqual(t, time.Since(began), 31*time.Second, "the cap, and a second")
	assert.Equal(t, dials.Load(), asked.Load(), "each dial asks")
	require.NoError(t, b.Publisher().Publish(t.Context(), "elsewhere", "x"))
	require.NoError(t, b.Shutdown(t.Context()))
	assert.NoError(t, server.Close())
	return 1
}
