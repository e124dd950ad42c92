package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Runs in a testing/synctest bubble, on a clock that only moves when nothing
// else does, are tests; as scenarios they are run by the test runner.
const (
	seedEnv   = "CHAOS_SEED"
	roundsEnv = "CHAOS_ROUNDS"
	resultEnv = "CHAOS_RESULT" // the file that the test writes its counts to
)

var refuse = scenario{
	name: "refuse", about: "connections and links are refused, or links detached after 10 ms, for 10 virtual minutes each",
	run: func(ctx context.Context, _ *battery, seed uint64) []*result {
		return []*result{virtual(ctx, "refuse", "TestRefuse", seed, 1, "-count=1")}
	},
}

var interleavings = scenario{
	name: "interleavings", about: "Subscribe, Close, Pause, Publish, settle, Shutdown and faults in random order, on a virtual clock, under the race detector",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		return []*result{virtual(ctx, "interleavings", "TestInterleavings", seed, pick(b, 500, 5000), "-race", "-count=1", "-timeout=60m")}
	},
}

// virtual runs a test of this folder and reads its counts.
func virtual(ctx context.Context, name, test string, seed uint64, rounds int, flags ...string) *result {
	r := &result{scenario: name, peer: "amqptest", seed: seed, runs: 1}
	began := time.Now()
	file, err := os.CreateTemp("", "chaos-result-*")
	if err != nil {
		r.breaches = append(r.breaches, err.Error())
		return r
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-run", "^" + test + "$"}, append(flags, ".")...)...)
	cmd.Env = append(os.Environ(), seedEnv+"="+strconv.FormatUint(seed, 10), roundsEnv+"="+strconv.Itoa(rounds), resultEnv+"="+file.Name())
	said, failed := cmd.CombinedOutput()
	r.took = time.Since(began)
	counts, err := os.ReadFile(file.Name())
	if err == nil {
		err = r.parse(string(counts))
	}
	if failed != nil {
		r.breaches = append(r.breaches, fmt.Sprintf("%s: %v: %s", test, failed, clip(strings.TrimSpace(string(said)), 4000)))
	} else if err != nil {
		r.breaches = append(r.breaches, fmt.Sprintf("%s: its counts: %v", test, err))
	}
	if err := file.Close(); err == nil {
		_ = os.Remove(file.Name()) // a temporary file more or less
	}
	return r
}

const counted = "%d %d %d %d %d %d %d %d %d %d %d"

// counts are the numbers of a result that a test passes on.
func (r *result) counts() []any {
	v := &r.verdict
	return []any{
		&r.runs, &r.faults, &v.published, &v.confirmed, &v.refused, &v.notSent, &v.uncertain,
		&v.attempts, &v.again, &v.queued, &v.dead,
	}
}

func (r *result) format() string {
	v := &r.verdict
	return fmt.Sprintf(counted, r.runs, r.faults, v.published, v.confirmed, v.refused, v.notSent, v.uncertain,
		v.attempts, v.again, v.queued, v.dead)
}

func (r *result) parse(s string) error {
	_, err := fmt.Sscanf(s, counted, r.counts()...)
	return err
}
