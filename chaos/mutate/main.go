// Command mutate breaks the library on purpose, one way at a time and without
// touching its files, and fails unless the battery notices. It is run in the
// folder chaos:
//
//	go run ./mutate            every mutation
//	go run ./mutate leak       this one
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run tries the mutations with these names, or all, and returns the join of
// what went unnoticed.
func run(ctx context.Context, names []string) error {
	var failed []error
	found := 0
	for _, m := range mutations {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		found++
		began := time.Now()
		breach, err := m.try(ctx, "..")
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		fmt.Printf("%-12s noticed by %-12s after %v: %s\n", m.name, m.scenario, time.Since(began).Round(time.Second), breach)
	}
	if found < max(len(names), 1) {
		failed = append(failed, fmt.Errorf("%d mutations of %v exist", found, names))
	}
	return errors.Join(failed...)
}

// errUnnoticed is returned where the battery passes over a mutation.
var errUnnoticed = errors.New("the battery did not notice")

// try builds the battery on the mutated library, whose root folder is given,
// and runs one scenario. It returns the first breach.
func (m mutation) try(ctx context.Context, root string) (breach string, err error) {
	folder, err := os.MkdirTemp("", "mutate-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	overlay, err := m.overlay(root, folder)
	if err != nil {
		return "", err
	}
	program := folder + "/chaos"
	build := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, "-o", program, ".")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, said)
	}
	battery := exec.CommandContext(ctx, program, "-scenario", m.scenario, "-seed", "1")
	battery.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay) // for scenarios that run a test
	said, err := battery.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("%w in %s:\n%s", errUnnoticed, m.scenario, said)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		return "", fmt.Errorf("%s: %w: %s", m.scenario, err, said)
	}
	for line := range strings.Lines(string(said)) {
		if strings.HasPrefix(line, "BREACH ") {
			return clip(strings.TrimSpace(line), 160), nil
		}
	}
	return "", fmt.Errorf("%s: it failed without a breach: %s", m.scenario, said)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
