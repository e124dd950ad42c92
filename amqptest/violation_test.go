package amqptest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestServer_closesWithTheConditionOfTheRuleThatWasBroken(t *testing.T) {
	for _, script := range slices.Concat(scripts, valueScripts) {
		t.Run(script.rule.name+": "+script.does, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(&Options{ChannelMax: 7, HandleMax: 7, IdleTimeout: time.Hour})
				require.NoError(t, s.Put("orders", numbered(2)...))
				r := dialRaw(t, s).opened()
				script.run(r)
				e := r.closed()
				require.NotNil(t, e)
				assert.Equal(t, string(script.rule.cond), string(e.Condition))
				assertBroke(t, s.Close(), script.rule)
				assertBroke(t, s.Close(), script.rule) // a second one returns the same
			})
		})
	}
}

// assertBroke says that err is one violation, of r.
func assertBroke(t *testing.T, err error, r rule) {
	t.Helper()
	var v *Violation
	require.ErrorAs(t, err, &v)
	assert.Equal(t, []any{r.name, r.section, r.cond}, []any{v.Rule, v.Section, v.Condition}, "%v", err)
	assert.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 1)
}

func TestServer_closesForWhatIsWrongInTheOpening(t *testing.T) {
	for _, opening := range openings {
		t.Run(opening.does, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer()
				r := dialRaw(t, s)
				began := time.Now()
				opening.run(r)
				for r.frame() != nil {
				}
				assert.LessOrEqual(t, time.Since(began), linger)
				assertBroke(t, s.Close(), opening.rule)
			})
		})
	}
}

func TestServer_refusesAFrameAfterClose(t *testing.T) {
	for _, frame := range [][]byte{frameOf(wire.TypeAMQP, 0, &wire.End{}, nil), emptyFrame} {
		synctest.Test(t, func(t *testing.T) {
			s := NewServer()
			r := dialRaw(t, s).opened()
			r.bytes(append(frameOf(wire.TypeAMQP, 0, &wire.Close{}, nil), frame...))
			r.await(wire.CodeClose)
			require.Nil(t, r.frame())
			assertBroke(t, s.Close(), ruleAfterClose)
		})
	}
}

func TestServer_refusesATransferBeyondTheSessionWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&Options{Window: 1})
		r := dialRaw(t, s).opened()
		a := attachSender(0)
		r.send(a)
		r.awaitFlow()
		more := first(0)
		more.More = true
		both := frameOf(wire.TypeAMQP, 0, &more, hello)
		both = append(both, frameOf(wire.TypeAMQP, 0, &wire.Transfer{}, nil)...)
		r.bytes(both) // in one read, before the server can open the window again
		e := r.closed()
		require.NotNil(t, e)
		assert.Equal(t, string(ruleSessionWindow.cond), string(e.Condition))
		assertBroke(t, s.Close(), ruleSessionWindow)
	})
}

func TestServer_refusesMoreDeliveriesThanCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		r := dialRaw(t, s).opened().sending()
		var all []byte
		for id := range uint32(linkCredit + 1) {
			delivery := first(id)
			delivery.DeliveryTag = []byte{byte(id), byte(id >> 8)}
			all = append(all, frameOf(wire.TypeAMQP, 0, &delivery, hello)...)
		}
		r.bytes(all)
		e := r.closed()
		require.NotNil(t, e)
		assert.Equal(t, string(ruleLinkCredit.cond), string(e.Condition))
		assertBroke(t, s.Close(), ruleLinkCredit)
		assert.Len(t, s.Messages("orders"), linkCredit, "what was within the credit is stored")
	})
}

func TestCheck_failsForEveryBrokenRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		for range 2 {
			r := dialRaw(t, s).opened()
			r.send(&wire.Detach{Handle: 4})
			r.closed()
		}
		var failures recorder
		Check(&failures, s)
		assert.Len(t, failures.errors, 2)
		require.Error(t, s.Close())
	})
}

type recorder struct {
	testing.TB
	errors   []error
	logs     []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return len(r.errors) > 0 }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Log(args ...any)  { r.logs = append(r.logs, fmt.Sprint(args...)) }
func (r *recorder) Error(args ...any) {
	err, _ := args[0].(error)
	r.errors = append(r.errors, err)
}

func TestServer_toleratesWhatCrossedItsDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		require.NoError(t, s.Put("orders", numbered(1)...))
		r := dialRaw(t, s).opened()
		r.receiving(10)
		r.awaitTransfer()
		out := attachSender(1)
		r.send(out)
		r.awaitFlow()
		more := first(0)
		more.Handle, more.More = 1, true
		r.transfer(more, hello)
		require.NoError(t, s.Fault(Detach("orders", "amqp:resource-deleted", "gone")))
		r.awaitDetach()
		r.awaitDetach()
		r.send(&wire.Disposition{Role: wire.RoleReceiver, Settled: true, State: wire.State{Kind: wire.StateAccepted}})
		r.transfer(wire.Transfer{Handle: 1, More: true}, nil)
		r.transfer(wire.Transfer{Handle: 1}, nil)
		f := linkFlow(5)
		f.NextIncomingID, f.NextOutgoingID = wire.Some(1), 3
		r.send(f, &wire.Detach{Handle: 0, Closed: true}, &wire.Detach{Handle: 1, Closed: true}, &wire.Close{})
		r.await(wire.CodeClose)
		assert.Equal(t, []string{"0"}, bodies(t, s), "it came back, and nothing was stored")
		assert.Empty(t, s.Settlements("orders"))
	})
}

func TestViolation_namesClientRuleAndSection(t *testing.T) {
	v := &Violation{Rule: "handle", Section: "2.6.2", Connection: "c", Detail: "flow on handle 4, which is not attached"}
	assert.EqualError(t, v, `amqptest: client "c" broke handle (section 2.6.2): flow on handle 4, which is not attached`)
}

// Every rule stands in the documentation of Violation, and is broken by a test.
func TestViolation_listsEveryRule(t *testing.T) {
	source, err := os.ReadFile("violation.go")
	require.NoError(t, err)
	documented := map[string]string{} // section by name
	declared := map[string]string{}
	for line := range strings.Lines(string(source)) {
		if words := strings.Fields(line); strings.HasPrefix(line, "//\t") {
			documented[words[1]] = words[2]
		}
		if at := strings.Index(line, "= rule{\""); at > 0 {
			parts := strings.Split(line[at:], "\"")
			declared[parts[1]] = parts[3]
		}
	}
	require.NotEmpty(t, declared)
	assert.Equal(t, declared, documented)
	tried := map[string]string{}
	for _, r := range []rule{ruleAfterClose, ruleSessionWindow} { // have tests of their own
		tried[r.name] = r.section
	}
	for _, script := range slices.Concat(scripts, valueScripts, openings) {
		tried[script.rule.name] = script.rule.section
	}
	assert.Equal(t, declared, tried)
}
