package dataplane

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// A link that gives its credit up answers, although another one waits for the
// session's window.
func TestSession_drainIsAnsweredWhileTheWindowIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBare(t, rigOptions{})
		r.open()
		s, ps := r.begin()
		a, pa := r.attach(s, "a", 0, wire.RoleSender)
		b, pb := r.attach(s, "b", 1, wire.RoleSender)
		s.mu.Lock()
		s.windowEnd = s.nextOutgoing
		s.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go1(t, func() { _, _ = a.Send(ctx, []byte("a"), SendOptions{}) })
		synctest.Wait()
		go1(t, func() { _, _ = b.Send(ctx, []byte("b"), SendOptions{}) })
		synctest.Wait()
		r.p.locked(func() { ps.windowEnd = ps.nextIncoming })
		pb.credit(1)
		synctest.Wait()
		f := ps.flow(1)
		f.Drain = true
		pa.creditWith(f, 5)
		synctest.Wait()
		assert.Contains(t, r.p.seen(), "flow a count=5 credit=0 drain=true")
		assert.NoError(t, r.c.Err())
		cancel()
		synctest.Wait()
	})
}
