package amqptest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// everyFault is one of each kind.
func everyFault() []Fault {
	return []Fault{
		RefuseTCP(),
		RefuseSASL(wire.SASLAuth),
		HangUpSASL(),
		RefuseOpen(amqp.ErrCondNotAllowed, ""),
		RefuseBegin(amqp.ErrCondResourceLimitExceeded, ""),
		RefuseAttach("orders", amqp.ErrCondNotFound, ""),
		Answer("orders", amqpflow.Rejected, nil),
		Answer("orders", amqpflow.OutcomeNone, nil),
		DropDisposition("orders"),
		IgnoreDisposition("orders"),
		IgnoreDrain("orders"),
		IgnoreDetach("orders"),
		IgnoreEnd(),
		IgnoreClose(),
		WithholdCredit("orders"),
		WithholdWindow(),
		Duplicate("orders"),
		Reorder("orders"),
		OverSend("orders"),
		TakeBack("orders", amqpflow.Modified),
		TakeBack("orders", amqpflow.Released),
		Detach("orders", amqp.ErrCondDetachForced, ""),
		Suspend("orders", "", ""),
		End(amqp.ErrCondResourceDeleted, ""),
		Close(amqp.ErrCondConnectionForced, ""),
		Drop(),
		WriteBytes(make([]byte, 4)),
		Silence(),
		Mute(),
		Deaf(),
		StopReading(),
		Drip(3, time.Millisecond),
	}
}

func TestFault_everyKindIsInTheTable(t *testing.T) {
	kinds := map[faultKind]bool{}
	for _, f := range everyFault() {
		kinds[f.kind] = true
	}
	for kind := faultRefuseTCP; kind < faultTogether; kind++ {
		assert.True(t, kinds[kind], traits[kind].name)
		assert.NotEmpty(t, traits[kind].name)
	}
}

// flow is round with amqpflow. What it calls ends within 100 ms of its context.
func flow(t *testing.T, s *Server) error {
	t.Helper()
	within := func(d time.Duration, call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		start := time.Now()
		err := call(ctx)
		require.LessOrEqual(t, time.Since(start), d+100*time.Millisecond)
		return err
	}
	b := amqpflow.New("amqp://localhost", &amqpflow.Options{IdleTimeout: 10 * time.Second})
	amqpflow.Subscribe(b, "orders", func(context.Context, *amqpflow.Message[string]) error { return nil })
	err := within(time.Minute, func(ctx context.Context) error { return s.Connect(ctx, b) })
	for range 3 {
		if err == nil {
			err = within(10*time.Second, func(ctx context.Context) error { return b.Publisher().Publish(ctx, "orders", "x") })
		}
	}
	_ = within(time.Minute, b.Shutdown)
	return err
}

// survives holds that whatever f does ends with Heal: the client's rounds end
// one way or the other, the next one succeeds, and the server closes at once.
// The client breaks no rule but those that it may: go-amqp by itself may use a
// handle again before its DETACH of it is out.
func survives(t *testing.T, f Fault, client func(*testing.T, *Server) error, may ...rule) {
	t.Helper()
	s := NewServer(&Options{Window: 16})
	Check(t, s)
	require.NoError(t, s.Fault(f))
	for range 3 {
		_ = client(t, s)
	}
	s.Heal()
	start := time.Now()
	require.NoError(t, client(t, s), "%v", f)
	_ = s.Close()
	require.LessOrEqual(t, time.Since(start), linger, "%v", f)
	for _, err := range s.violations {
		var v *Violation
		require.ErrorAs(t, err, &v)
		require.True(t, slices.ContainsFunc(may, func(r rule) bool { return r.name == v.Rule }), "%v: %v", f, v)
	}
}

// variants are f as it is, with each modifier, and always.
func variants(f Fault) []Fault {
	all := []Fault{f, f.After(1), f.AfterFrames(13), f.AfterBytes(900), f.Delay(time.Second), f.For(time.Second), f.Chance(0.3, 1)}
	for _, v := range all {
		all = append(all, v.Always())
	}
	return all
}

func TestFault_everyKindInEveryVariant(t *testing.T) {
	ran := 0
	for _, f := range everyFault() {
		for _, v := range variants(f) {
			if s := NewServer(); s.Fault(v) != nil {
				continue // does not go together
			}
			ran++
			t.Run("go-amqp/"+v.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { survives(t, v, round, ruleHandleInUse) })
			})
			t.Run("amqpflow/"+v.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { survives(t, v, flow) })
			})
		}
	}
	assert.Greater(t, ran, 200)
}

func TestFault_everyKindWithOthers(t *testing.T) {
	const step = 6 // of all pairs: all of them take too long under the race detector
	for i, f := range everyFault() {
		synctest.Test(t, func(t *testing.T) {
			for j, g := range everyFault() {
				if j <= i || (i+j)%step != 0 {
					continue
				}
				survives(t, Together(f.Always(), g.Always()), round, ruleHandleInUse)
				survives(t, Sequence(f, g).Always(), flow)
			}
		})
	}
}
