package interop_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExampleBroker does the round against examples/broker, as somebody would
// who has no Go program at all.
func TestExampleBroker(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "broker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/broker")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "protonj2" {
				t.Skip("its start takes a second, and one client more shows nothing more")
			}
			argv := c.command(t)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			broker := exec.CommandContext(ctx, program, "-port", "0", "-users", user+":"+password, "-queues", "sent")
			stdout, err := broker.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, broker.Start())
			lines := bufio.NewReader(stdout)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			_, url, _ := strings.Cut(strings.TrimSpace(line), " on ")

			do(ctx, t, argv, url)
			require.NoError(t, broker.Process.Signal(os.Interrupt))
			line, err = lines.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "stopped\n", line)
			for line, err = lines.ReadString('\n'); err == nil; line, err = lines.ReadString('\n') {
				name, left, _ := strings.Cut(strings.TrimSpace(line), ": ")
				dead := map[bool]string{true: "1 dead", false: "0 dead"}[name == "outcomes"]
				assert.Equal(t, "0 left, "+dead, left, name)
			}
			require.NoError(t, broker.Wait())
		})
	}
}
