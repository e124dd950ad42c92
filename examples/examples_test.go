// Package examples_test runs what a stranger would run first.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// said is what each example that ends by itself writes, whatever the peer.
var said = map[string]string{
	"quickstart": `ordering 3 × lamp
shipping 3 × lamp
stopped, nothing left behind
`,
	"outcomes": `good   attempt 1: accepted
flaky  attempt 1: modified
flaky  attempt 2: accepted
busy   attempt 1: released
busy   attempt 1: accepted
broken attempt 1: rejected
bug    attempt 1: rejected
`,
	"retry": `abroad: the bank does not answer, in a second
rent: paid at attempt 1
wages: paid at attempt 1
two are paid, held meanwhile: 1
abroad: the bank does not answer
abroad: paid at attempt 3
`,
	"deadletter": `to ann, attempt 1
to nobody, attempt 1
to the bank, attempt 1
to the bank, attempt 2
to the bank, attempt 3
put aside: "to nobody", attempts: 1, handler: no such account
put aside: "to the bank", attempts: 3, max-attempts: the bank does not answer
`,
	"shutdown": `stopped after 1 job
the next instance did the other 4
`,
	"testing": `an invoice over 5700 for order A-1
`,
	"reply": `basket 1 costs 750
basket 2 costs 1900
`,
	"lanes": `ann: 20 bookings, in order: true
ben: 20 bookings, in order: true
cleo: 20 bookings, in order: true
`,
	"batch": `4 readings, 3 rows
4 readings, 4 rows
7 accepted, 1 rejected
`,
	"stream": `one
no line: rejected
two
the end
`,
	"pipelined": `1000 sent, 1000 confirmed
1000 read in order
`,
	"middleware": `packing a lamp
shipping a box with a lamp
r-17 handled: accepted
`,
	"http": `the customer got 202 Accepted
`,
}

// folder holds every example, compiled by the first test that runs one.
var folder string

var compile = sync.OnceValue(func() (err error) {
	if folder, err = os.MkdirTemp("", "amqpflow-examples-"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", folder, "./broker")
	for example := range said {
		build.Args = append(build.Args, "./"+example)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		os.RemoveAll(folder)
	}
	os.Exit(code)
}

func program(t *testing.T, example string) string {
	t.Helper()
	require.NoError(t, compile())
	return filepath.Join(folder, example)
}

func TestExamples_sayTheSameOnEveryPeer(t *testing.T) {
	peers := map[string]string{
		"amqptest": "",
		"artemis":  os.Getenv("AMQPFLOW_ARTEMIS_URL"),
		"rabbitmq": os.Getenv("AMQPFLOW_RABBITMQ_URL"),
	}
	for example, want := range said {
		for peer, url := range peers {
			if url == "" && peer != "amqptest" {
				continue
			}
			t.Run(peer+"/"+example, func(t *testing.T) {
				var stdout, stderr bytes.Buffer
				command := exec.CommandContext(t.Context(), program(t, example))
				command.Env = append(os.Environ(), "AMQP_URL="+url)
				command.Stdout, command.Stderr = &stdout, &stderr
				require.NoError(t, command.Run(), "%s", &stderr)
				assert.Equal(t, want, stdout.String())
				assert.Empty(t, stderr.String())
			})
		}
	}
}

func TestExamples_brokerSaysWhatIsLeft(t *testing.T) {
	command := exec.CommandContext(t.Context(), program(t, "broker"), "-port", "0",
		"-queues", "orders,invoices", "-topics", "prices", "-users", "ann:secret,ben:other")
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewReader(stdout)
	var urls []string
	for _, user := range []string{"ann:secret", "ben:other"} {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		_, url, ok := strings.Cut(strings.TrimSpace(line), " on ")
		require.True(t, ok, line)
		assert.Contains(t, url, "amqp://"+user+"@")
		urls = append(urls, url)
	}
	stranger := strings.Replace(urls[0], "secret", "guess", 1)
	require.Error(t, amqpflow.New(stranger).Connect(t.Context()))

	b := amqpflow.New(urls[0])
	rejected := make(chan struct{})
	amqpflow.Subscribe(b, "invoices", func(context.Context, *amqpflow.Message[string]) error {
		close(rejected)
		return amqpflow.Reject(errors.New("not this one"))
	})
	require.NoError(t, b.Connect(t.Context()))
	for _, address := range []amqpflow.Address{"orders", "orders", "invoices", "more"} {
		require.NoError(t, b.Publisher().Publish(t.Context(), address, "hello"))
	}
	<-rejected
	require.NoError(t, b.Shutdown(context.Background()))

	require.NoError(t, command.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	assert.Equal(t, `stopped
invoices: 0 left, 1 dead
more: 1 left, 0 dead
orders: 2 left, 0 dead
prices: 0 left, 0 dead
`, string(rest))
	require.NoError(t, command.Wait())
}

func TestExamples_brokerAnswersAsAnother(t *testing.T) {
	command := exec.CommandContext(t.Context(), program(t, "broker"), "-port", "0", "-queues", "orders", "-dialect", "rabbitmq")
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	_, url, _ := strings.Cut(strings.TrimSpace(line), " on ")

	b := amqpflow.New(url)
	require.NoError(t, b.Connect(t.Context()))
	require.NoError(t, b.Publisher().Publish(t.Context(), "orders", "hello"))
	require.ErrorAs(t, b.Publisher().Publish(t.Context(), "missing", "hello"), new(*amqpflow.AttachError))
	require.NoError(t, b.Shutdown(context.Background()))
	require.NoError(t, command.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	require.NoError(t, command.Wait())
}

func TestExamples_brokerEndsByItself(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), program(t, "broker"), "-port", "0", "-for", "10ms").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Regexp(t, `^serving AMQP 1\.0 on amqp://127\.0\.0\.1:\d+\nstopped\n$`, string(out))
}

func TestExamples_brokerSaysWhatItCannotDo(t *testing.T) {
	for _, flags := range [][]string{{"-dialect", "ibm"}, {"-users", "ann"}, {"-v", "loud"}, {"-port", "70000"}, {"-queues", "a,"}} {
		out, err := exec.CommandContext(t.Context(), program(t, "broker"), flags...).CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), strings.TrimSuffix(flags[1], ","), flags)
	}
}

func TestExamples_fitOnAPage(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.LessOrEqual(t, bytes.Count(text, []byte("\n")), 80, file)
	}
}

func TestReadme_firstProgramCompiles(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(readme, -1)
	require.NotEmpty(t, programs)
	for _, program := range programs {
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, program[1], 0o600))
		out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
