package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// command is what the shell runs to start, kill or control a broker; "" if it
// cannot be done.
type command string

// run runs the command with arguments behind it.
func (c command) run(ctx context.Context, args ...string) error {
	if c == "" {
		return fmt.Errorf("no command was given for it")
	}
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", string(c) + ` "$@"`, "chaos"}, args...)...)
	// Not a pipe, which a daemon that is started would hold open.
	log, err := os.CreateTemp("", "chaos-command-*")
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	said, _ := os.ReadFile(log.Name()) // what it said only helps to read the error
	if gone := errors.Join(log.Close(), os.Remove(log.Name())); err == nil {
		err = gone
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", c, err, strings.TrimSpace(string(said)))
	}
	return nil
}
